package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// fault changes a world. strike runs on the goroutine that draws random numbers, and draws those for later
// effects at once.
type fault struct {
	name   string
	strike func(w *world, n *node)
}

var faults = []fault{
	{"kill", func(w *world, n *node) {
		n.strike(1+w.rng.IntN(40), (*process).kill)
		w.after(w.leases(0, 5), n.start)
	}},
	{"power loss", func(w *world, n *node) { w.locked(n.powerOff); w.after(w.leases(0, 4), n.start) }},
	{"restart of many", func(w *world, _ *node) {
		for _, n := range w.nodes {
			if w.rng.IntN(4) > 0 {
				n.strike(1, (*process).kill)
				w.after(w.leases(0, 0.5), n.start)
			}
		}
	}},
	{"stop", func(w *world, n *node) { go n.stop(); w.after(w.leases(0, 6), n.start) }},
	{"cut", func(w *world, n *node) { // isolates one node or separates two sides, in one or both directions
		side, in, out := w.rng.IntN(1<<pool), w.rng.IntN(3) > 0, w.rng.IntN(3) > 0
		if w.rng.IntN(2) == 0 {
			side = 1 << n.index
		}
		var cut [][2]netip.AddrPort
		w.locked(func() {
			for _, a := range w.nodes {
				for _, b := range w.nodes {
					if from, dst := side>>a.index&1, side>>b.index&1; out && from > dst || in && from < dst {
						cut = append(cut, [2]netip.AddrPort{a.home, b.home})
					}
				}
			}
		})
		w.cuts = append(w.cuts, cut...)
		w.cut(cut, true)
		w.after(w.leases(0.3, 6), func() { w.cut(cut, false) })
	}},
	{"storm", func(w *world, _ *node) {
		w.weather(w.leases(0, 0.3), 0.5*w.rng.Float64(), 0.3*w.rng.Float64())
		w.after(w.leases(1, 4), func() { w.weather(w.delay, 0, 0) })
	}},
	{"slow kernel", func(w *world, n *node) {
		w.locked(func() { n.slow = time.Now().Add(w.leases(0.5, 4)) })
	}},
	{"stuck kernel", func(w *world, n *node) {
		w.locked(func() { n.stuck = time.Now().Add(w.leases(0.5, 4)) })
	}},
	{"failing check", func(w *world, n *node) {
		w.after(0, func() { n.setSound(false) })
		w.after(w.leases(0, 4), func() { n.setSound(true) })
	}},
	{"overload", func(w *world, _ *node) {
		for _, n := range w.nodes {
			w.after(w.leases(0, 1), func() { n.setHealth(false, true) })
			w.after(w.leases(2, 6), func() { n.setSound(true) })
		}
	}},
	{"drain", func(w *world, n *node) {
		w.after(0, func() { n.with(func(p *process) { p.speaker.Drain("for a while", 0) }) })
		w.after(w.leases(0, 6), func() { n.with(func(p *process) { p.speaker.Undrain() }) })
	}},
	{"flush of nftables", func(w *world, n *node) {
		w.locked(func() { n.sets, n.flushed, n.altered = nil, time.Now(), n.altered+1 })
	}},
	{"address taken away", func(w *world, n *node) {
		w.locked(func() { n.bound, n.taken = map[netip.Addr]time.Time{}, time.Now() })
	}},
	{"other file", func(w *world, _ *node) {
		switch f := &w.target; w.rng.IntN(5) {
		case 0:
			f.at[w.rng.IntN(vips)] ^= 1
		case 1:
			f.linger, f.preempt = w.leases(0, 1)*time.Duration(w.rng.IntN(2)), w.rng.IntN(2) == 0
		case 2:
			f.lease = w.lease - w.leases(0, 0.4).Truncate(time.Millisecond)
		case 3:
			f.renamed[w.rng.IntN(vips)] = w.rng.IntN(2) == 0
		case 4:
			f.joint = !f.joint
		}
		w.locked(w.rollOut)
	}},
	{"other members", func(w *world, n *node) {
		change := w.changeList
		if w.open {
			change = w.changeNodes
		}
		w.locked(func() { change(n) })
	}},
	{"freeze", func(w *world, n *node) { // must be last: simulate draws the last fault most often
		d, touches := w.leases(0.1, 4), 1+w.rng.IntN(40)
		n.strike(touches, func(p *process) { p.freeze(d) })
	}},
}

// strike calls effect at the given number of calls of [process.touch] from now.
func (n *node) strike(touches int, effect func(p *process)) {
	n.w.locked(func() {
		if p := n.proc; p != nil {
			p.countdown, p.then = touches, func() { effect(p) }
		}
	})
}

// changeList adds, removes or moves a member. It may revert a change that is still in progress.
func (w *world) changeList(n *node) {
	members := maps.Clone(w.target.members)
	if w.rng.IntN(3) == 0 {
		n = w.nodes[w.rng.IntN(pool)]
	}
	switch _, listed := members[n.name]; {
	case listed && w.rng.IntN(3) == 0 && len(members) > 2 && w.agreed():
		members[n.name] = w.elsewhere(n)
	case listed:
		delete(members, n.name)
	default:
		members[n.name] = n.home
	}
	fresh := 0
	for name := range members {
		if w.node(name).disk().Committed.Number == 0 {
			fresh++
		}
	}
	if len(members) < 2 || len(members) > pool || fresh > (len(members)-1)/2 {
		return
	}
	w.figures.changes++
	w.target.members, w.changed = members, time.Now()
	w.rollOut()
	for _, n := range w.nodes {
		if _, listed := members[n.name]; !listed && w.rng.IntN(3) == 0 {
			w.after(w.leases(0, 6), func() {
				w.locked(func() {
					if maps.Equal(members, w.target.members) && !w.calm {
						n.powerOff()
						n.installed = false
					}
				})
			})
		}
	}
}

// agreed reports whether the current list is committed, all its members have it, and four leases have passed since.
// Moving a voter during a removal could cost the majority.
func (w *world) agreed() bool {
	var members []string
	for name, at := range w.target.members {
		members = append(members, electorate.Member(name, at, ""))
		if !maps.Equal(w.node(name).file.members, w.target.members) {
			return false
		}
	}
	slices.Sort(members)
	return slices.Equal(members, w.latest().Members) && time.Since(w.changed) > 4*w.lease
}

// rollOut installs the file on the nodes in random order, on some late or never.
func (w *world) rollOut() {
	for _, n := range w.nodes {
		f := w.target
		f.priority = w.rng.IntN(3)
		for v := range vips {
			f.pool[v] = w.rng.IntN(4) == 0
		}
		_, listed := f.members[n.name]
		if listed || n.installed && w.rng.IntN(2) == 0 {
			w.after(w.leases(0, 3), func() { n.reload(f) })
		}
	}
}

// reload applies a file, with a restart if the node's address changes.
func (n *node) reload(f file) {
	n.busy <- struct{}{}
	at, listed := f.members[n.name]
	n.w.locked(func() {
		n.w.log(n.name, "gets members %v, lease %v, VIPs at %v, renamed %v, joint %v, in pools %v, priority %d", f.members, f.lease, f.at, f.renamed, f.joint, f.pool, f.priority)
		restart := f.joint != n.file.joint || f.renamed != n.file.renamed // a reload refuses this
		n.file, n.installed = f, true
		if listed && at != n.home {
			n.home, restart = at, true
		}
		if restart && n.proc != nil {
			n.proc.kill()
		}
	})
	n.with(func(p *process) {
		if err := p.apply(); err != nil {
			_, _ = fmt.Fprintf(p, "refuses its file: %v", err)
		}
	})
	<-n.busy
	n.start()
}

// powerOff ends process and kernel. The caller holds the mutex.
func (n *node) powerOff() {
	if n.proc != nil {
		n.proc.kill()
	}
	n.kernel = kernel{bound: make(map[netip.Addr]time.Time), altered: n.altered + 1}
}

// changeNodes installs a node, removes the vote of one, powers one off, moves one or erases its disk. The caller holds the
// mutex.
func (w *world) changeNodes(n *node) {
	switch kind := w.rng.IntN(6); {
	case kind == 0:
		n = w.nodes[w.rng.IntN(pool)]
		n.installed = true
	case kind == 1:
		w.removed = time.Now()
		for _, o := range w.nodes {
			go o.with(func(p *process) {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 2*w.lease)
					defer cancel()
					_ = p.election.Remove(ctx, n.name)
				}()
			})
		}
	case !w.spared(n), time.Since(w.removed) < 3*w.lease:
		return
	case kind == 2:
		n.powerOff()
		n.installed = false
	case kind == 3:
		n.powerOff()
		n.home = w.elsewhere(n)
	default:
		n.powerOff()
		_ = os.Remove(n.state)
	}
	w.figures.changes++
	w.log(n.name, "changes: installed %t, at %v", n.installed, n.home)
	w.after(w.leases(0, 3), n.start)
}

// disk reads the node's state file.
func (n *node) disk() (s struct {
	Identity string
	lease.State
}) {
	b, _ := os.ReadFile(n.state)
	_ = json.Unmarshal(b, &s)
	return s
}

// latest returns the latest committed electorate of all nodes.
func (w *world) latest() (r electorate.Committed) {
	for _, n := range w.nodes {
		if d := n.disk(); d.Committed.Number > r.Number {
			r = d.Committed
		}
	}
	return r
}

// spared reports whether every electorate that may be in force has a majority without the node.
func (w *world) spared(without *node) bool {
	latest := w.latest()
	for _, n := range w.nodes {
		d := n.disk()
		for _, e := range []*electorate.Electorate{&d.Committed.Electorate, d.Value} {
			if e == nil || d.Committed.Number < latest.Number {
				continue
			}
			left := 0
			for _, member := range e.Members {
				o := w.node(electorate.Name(member))
				if o != without && o.installed && member == electorate.Member(o.name, o.home, o.disk().Identity) {
					left++
				}
			}
			if left < e.Majority() {
				return false
			}
		}
	}
	return latest.Number > 0
}

// elsewhere returns another address for a node.
func (w *world) elsewhere(n *node) netip.AddrPort {
	a := n.home.Addr().As4()
	a[2] = byte(1 + w.rng.IntN(250))
	return netip.AddrPortFrom(netip.AddrFrom4(a), n.home.Port())
}

func (w *world) cut(some [][2]netip.AddrPort, cut bool) {
	for _, c := range some {
		w.net.Cut(c[0], c[1], cut)
	}
}

func (w *world) weather(delay time.Duration, loss, twice float64) {
	w.net.Lock()
	defer w.net.Unlock()
	w.net.Delay, w.net.Loss, w.net.Twice = delay+time.Microsecond, loss, twice
}

// victim returns an installed node: half of the time, if possible, the last holder of a VIP.
func (w *world) victim() (n *node) {
	w.locked(func() {
		all := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return !n.installed })
		n = all[w.rng.IntN(len(all))]
		if v := w.rng.IntN(2 * vips); v < vips && w.last[v] != nil && w.last[v].installed {
			n = w.last[v]
		}
	})
	return n
}

// locked calls f with the mutex held.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// leases draws a duration between low and high lease times.
func (w *world) leases(low, high float64) time.Duration {
	return time.Duration((low + w.rng.Float64()*(high-low)) * float64(w.lease))
}

// after calls f on its own goroutine after d.
func (w *world) after(d time.Duration, f func()) { time.AfterFunc(d, f) }

func noise(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}
