package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// admin maintains the configuration files. She changes them at any time, waits for nothing, reloads nodes in any order,
// late or never, and lets removed nodes run on or switches them off. She keeps one rule: new nodes without a committed
// electorate are a minority of their list, as they could begin a cluster of their own otherwise.
type admin struct {
	target  electorate.Electorate
	removed instant // time of the last removed vote
	anew    instant // the site may be begun anew after it
	first   *node   // on which the site is begun anew; nil: on none
}

// install gives the first electorate to its members and boots them in any order.
func (a *admin) install(w *world) {
	a.target = electorate.Electorate{Members: slices.Clone(pool[:w.set.voters]), Duration: w.set.lease, Quorum: w.variant.quorum}
	if w.variant.noQuorum {
		a.target.Quorum = electorate.None
	}
	if w.variant.births {
		a.bear(w)
		return
	}
	for _, n := range slices.Concat(w.nodes[:w.set.voters], w.nodes[firstWorker:firstWorker+w.set.workers]) {
		n.file, n.installed = a.target, true
		w.after(w.between(0, w.set.lease/2), n.start)
	}
	if w.variant.open {
		w.run(begun + 20*w.set.lease)
	}
}

const (
	// begun is when the first member has begun an open electorate. forget is the time after which a timed-out voter
	// loses its vote, in leases.
	begun  = 4 * time.Second
	forget = 6
)

// changeNodes plays the admin of an open electorate: she installs, moves and switches off nodes, and removes votes. She
// keeps two rules: a majority of the voters keep their disks, and she does one thing at a time, with no disk lost
// within two leases of a removal.
func (a *admin) changeNodes(w *world, rng *rand.Rand) {
	if w.calm {
		return
	}
	n := w.victim(rng)
	if w.set.restless {
		w.after(between(rng, 0, w.set.lease), func() { a.changeNodes(w, rng) })
	}
	w.figures.changes++
	if w.variant.wide && rng.IntN(3) == 0 {
		a.target.Duration = w.anotherLease(rng)
		for _, o := range w.nodes {
			if o.installed && rng.IntN(3) > 0 {
				d := a.target.Duration
				w.after(between(rng, 0, 2*w.set.lease), func() { o.reloadLease(d) })
			}
		}
	}
	switch kind := rng.IntN(6); {
	case kind == 0:
		n = w.nodes[rng.IntN(len(w.nodes))]
		n.file, n.installed = a.target, true
	case kind == 1:
		a.removed = w.now
		for _, o := range w.nodes {
			if p := o.proc; p != nil {
				p.do(func() {
					w.log(o.name, "removes the vote of %s: %v", n.name, p.machine.Remove(p.now(), n.name))
					p.flush()
				})
			}
		}
	case !w.spared(n), w.latest().Number == 0, w.now-a.removed < 2*w.set.lease:
	case kind == 2:
		n.powerLoss()
		n.installed = false
	default:
		n.powerLoss()
		if kind > 3 {
			n.disk.State = lease.State{}
		}
		n.installs++
		w.log(n.name, "is installed anew, as %s", n.member())
	}
	w.after(between(rng, 0, 3*w.set.lease), n.start)
}

// anotherLease returns a Duration for the files.
func (w *world) anotherLease(rng *rand.Rand) time.Duration {
	if !w.variant.wide {
		return w.set.lease - between(rng, 0, w.set.lease/3)
	}
	tenths := []time.Duration{1, 3, 10, 20, 50}[rng.IntN(5)]
	return max(20*time.Millisecond, tenths*w.set.lease/10)
}

// spared reports whether every electorate that may be in force has a majority without a node.
func (w *world) spared(without *node) bool {
	states := slices.Clone(w.proposed)
	for _, n := range w.nodes {
		states = append(states, n.disk.states()...)
	}
	for _, s := range states {
		for _, e := range []*electorate.Electorate{&s.Committed.Electorate, s.Value} {
			if e == nil || s.Committed.Number == 0 {
				continue
			}
			left := 0
			for _, name := range e.Members {
				if o := w.nodes[indexOf(name)]; o != without && o.installed && o.member() == name {
					left++
				}
			}
			joins := len(e.Members) == 1 // a sole voter may be adding the node
			if (left < e.Majority() || joins) && s.Committed.Number >= w.latest().Number {
				return false
			}
		}
	}
	return true
}

// latest returns the latest committed electorate that any node knows.
func (w *world) latest() (r electorate.Committed) {
	for _, n := range w.nodes {
		for _, s := range n.disk.states() {
			if s.Committed.Number > r.Number {
				r = s.Committed
			}
		}
	}
	return r
}

// change adds or removes a member, changes the Duration, or both.
func (a *admin) change(w *world, rng *rand.Rand) {
	switch {
	case w.variant.births && rng.IntN(2) == 0:
		a.beginAnew(w, rng)
		return
	case w.variant.births:
		a.restore(w, rng)
		return
	case w.variant.open:
		a.changeNodes(w, rng)
		return
	}
	if w.calm || w.variant.quorum == electorate.None {
		return
	}
	old, e := a.target.Members, a.target
	if rng.IntN(4) == 0 {
		e.Duration = w.anotherLease(rng)
	}
	if rng.IntN(2) == 0 {
		e.Members = toggle(old, w.victim(rng).name)
	} else if rng.IntN(2) == 0 || e.Duration == a.target.Duration {
		e.Members = toggle(old, pool[rng.IntN(len(pool))])
	}
	if w.set.restless {
		w.after(between(rng, 0, w.set.lease), func() { a.change(w, rng) })
	}
	fresh := 0
	for _, n := range a.membersOf(w, e) {
		if n.disk.Committed.Number == 0 {
			fresh++
		}
	}
	if len(e.Members) < 2 || len(e.Members) > 6 || fresh >= e.Majority() {
		return
	}
	a.target = e
	w.log("", "members are to be %v, the lease %v", e.Members, e.Duration)
	w.figures.changes++
	for _, n := range w.nodes {
		switch before, after := slices.Contains(old, n.name), slices.Contains(e.Members, n.name); {
		case after, n.installed && rng.IntN(2) == 0: // or its reload lags behind
			w.after(between(rng, 0, 2*w.set.lease), n.reload)
		case before && rng.IntN(2) == 0: // switched off, sooner or later
			w.after(between(rng, 0, 6*w.set.lease), n.remove)
		}
	}
}

// toggle adds or removes a member.
func toggle(members []string, name string) []string {
	i, found := slices.BinarySearch(members, name)
	if members = slices.Clone(members); found {
		return slices.Delete(members, i, i+1)
	}
	return slices.Insert(members, i, name)
}

// reload applies the currently wanted electorate to a node.
func (n *node) reload() {
	if n.w.variant.open {
		n.start()
		return
	}
	e := n.w.admin.target
	if !slices.Contains(e.Members, n.name) && !n.installed {
		return
	}
	n.file, n.installed = e, true
	n.start()
	if n.proc != nil {
		n.proc.do(func() {
			p := n.proc
			err := p.machine.Reconfigure(p.now(), p.file)
			p.w.log(p.name, "reloads, members %v, lease %v: %v", p.file.Members, p.file.Duration, err)
			p.flush()
		})
	}
}

// reloadLease gives a member of an open electorate another Duration.
func (n *node) reloadLease(d time.Duration) {
	n.file.Duration = d
	if p := n.proc; p != nil {
		p.do(func() {
			e := p.file
			e.Members = []string{p.member()}
			err := p.machine.Reconfigure(p.now(), e)
			p.w.log(p.name, "reloads, lease %v: %v", d, err)
			p.flush()
		})
	}
}

// remove switches a node off unless it is a future member or a worker.
func (n *node) remove() {
	if !n.w.calm && n.installed && !n.worker() && !slices.Contains(n.w.admin.target.Members, n.name) {
		n.powerLoss()
		n.installed = false
	}
}

// done reports whether all nodes have the wanted electorate or, if it is open, one of present members.
func (a *admin) done(w *world) bool {
	if w.variant.open {
		a.target = w.latest().Electorate
		if slices.ContainsFunc(a.target.Members, func(name string) bool { return w.nodes[indexOf(name)].member() != name }) {
			return false
		}
	}
	return !slices.ContainsFunc(w.running(), func(n *node) bool {
		s := n.proc.machine.Status(n.now())
		return s.Active == nil || s.Active.Digest() != a.target.Digest() || s.Desired != nil && w.variant.open
	})
}

// membersOf returns the nodes that vote in an electorate.
func (a *admin) membersOf(w *world, e electorate.Electorate) []*node {
	var nodes []*node
	for _, name := range e.Members {
		nodes = append(nodes, w.nodes[indexOf(name)])
	}
	return nodes
}
