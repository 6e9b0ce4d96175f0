package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// A variant with births has clusters that begin apart. Nodes bootstrap in any number and order, on any side of a
// partition. The site is begun anew while some nodes keep their disks. Two nodes may answer for one VIP only for
// different clusters, and only until the calm has lasted one lease: by then all have received each other.

// TestSchedulesOfBirths runs schedules with several clusters.
func TestSchedulesOfBirths(t *testing.T) {
	runSchedules(t, variant{open: true, births: true}, *schedules/5)
}

// listen is longer than a bootstrapping member looks for others.
const listen = 4 * time.Second

// bear installs nodes that bootstrap, or join, in any order and on either side of a partition.
func (a *admin) bear(w *world) {
	side := w.rng.IntN(1 << len(pool))
	mend := w.net.sever(func(src, dst int) bool { return side>>src&1 != side>>dst&1 })
	for i, n := range w.nodes {
		n.file, n.installed, n.bootstraps = a.target, true, i == 0 || w.rng.IntN(3) == 0 && !n.worker()
		w.after(w.between(0, 2*listen), n.start)
	}
	w.after(w.between(0, 4*listen), mend)
	w.run(w.between(listen, 5*listen))
	w.set.chaos += 4 * listen
}

// beginAnew switches all nodes off, empties the disks of a majority of them, and begins the site anew on one. The others
// return once it has begun, with their old disks.
func (a *admin) beginAnew(w *world, rng *rand.Rand) {
	if w.now < a.anew || w.now > w.calmAt-2*listen-4*w.set.lease {
		return
	}
	a.anew = w.now + 3*listen
	wiped := rng.Perm(firstWorker)[:4+rng.IntN(3)]
	for i, n := range w.nodes {
		n.powerLoss()
		n.bootstraps = i == wiped[0]
		if slices.Contains(wiped, i) {
			n.disk.State, n.installs = lease.State{}, n.installs+1
		}
		n.installed = n.bootstraps
	}
	a.first = w.nodes[wiped[0]]
	a.first.start()
	w.log("", "the site is begun anew on %s, without the disks of %v", a.first.name, wiped)
	w.comeBack(a.first, rng)
}

// begins reports whether the site is being begun anew: the other nodes stay off until it has a cluster.
func (a *admin) begins() bool { return a.first != nil && a.first.disk.Committed.Number == 0 }

// comeBack switches the other nodes on once a node has begun its cluster.
func (w *world) comeBack(first *node, rng *rand.Rand) {
	w.after(w.set.lease, func() {
		if first.disk.Committed.Number == 0 {
			w.comeBack(first, rng)
			return
		}
		for _, n := range w.nodes {
			n.installed = true
			w.after(between(rng, 0, w.set.lease), n.start)
		}
	})
}

// restore gives a worker an old disk, or none.
func (a *admin) restore(w *world, rng *rand.Rand) {
	n := w.nodes[firstWorker+rng.IntN(len(pool)-firstWorker)]
	if !n.installed {
		return
	}
	n.crash()
	old := n.disk.State
	if n.disk.State = n.before; rng.IntN(2) == 0 {
		n.disk.State, n.installs = lease.State{}, n.installs+1
	}
	n.before = old
	w.after(between(rng, 0, w.set.lease), n.start)
}

// converge lets an operator follow the advice of each node that has been in a lesser cluster for a while, until all are in
// one. There must be a holder all the time since the first one of the calm, and never two.
func (w *world) converge() {
	w.run(w.now + listen + w.leases(3)) // a site begun anew just now has its first cluster
	if w.admin.begins() {
		w.fail("no cluster", "%s begins none", w.admin.first.name)
	}
	w.run(w.now + w.leases(3)) // and the other nodes are back
	w.settled = true
	advised := map[int]int{}
	for range 120 {
		w.run(w.now + w.leases(1))
		if w.broken != nil {
			return
		}
		one := true
		for _, n := range w.running() {
			one = one && n.disk.Committed.Number > 0 && n.disk.Committed.Cluster == w.running()[0].disk.Committed.Cluster
			if n.proc == nil || !strings.Contains(n.proc.machine.Status(n.now()).Problem, " belongs to another cluster, ") {
				advised[n.index] = 0
			} else if advised[n.index]++; advised[n.index] > 3 {
				w.log(n.name, "is told to join another cluster, and does")
				n.crash()
				n.closeAll()
				n.disk.State, n.installs, n.bootstraps = lease.State{}, n.installs+1, false
				n.start()
			}
		}
		if one {
			break
		}
	}
	began := w.now
	w.run(w.now + w.leases(recovery))
	for _, n := range w.running() {
		if n.disk.Committed.Cluster != w.running()[0].disk.Committed.Cluster {
			w.fail("several clusters", "%s is in %v, %s in %v", n.name, n.disk.Committed, w.running()[0].name, w.running()[0].disk.Committed)
		}
	}
	for v := range w.set.vips {
		if _, yes := w.recovered(&w.check.answers[v], began); !yes {
			w.fail("no holder", "nobody answers for vip%d", v)
		}
	}
}

// allowed reports whether two nodes may hold or answer for a VIP at once.
func (w *world) allowed(v, a, b int) bool {
	if w.variant.births {
		return !w.settled && w.nodes[a].under[v] != w.nodes[b].under[v]
	}
	return w.variant.quorum == electorate.None && !w.settled
}
