package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/herald-vip/herald/lease"
)

// An admin keeps the config files. She changes one thing at a time, and begins
// the next change only when every member's status tells that the last one is
// done and the member that was removed is switched off, as the documentation
// demands; on the way she reloads the nodes one by one, late and in any order.
type admin struct {
	target lease.Electorate
}

// install puts the first electorate on its members and boots them in any order.
func (a *admin) install(w *world) {
	a.target = lease.Electorate{Members: slices.Clone(pool[:w.set.voters]), Duration: w.set.lease, Quorum: w.variant.quorum}
	if w.variant.noQuorum {
		a.target.Quorum = lease.None
	}
	for _, n := range slices.Concat(w.nodes[:w.set.voters], w.nodes[firstWorker:firstWorker+w.set.workers]) {
		n.file, n.installed = a.target, true
		w.after(w.between(0, w.set.lease/2), n.start)
	}
}

// change adds or removes a member, changes the Duration, or both at once, as soon
// as the last change is done.
func (a *admin) change(w *world, rng *rand.Rand) {
	if w.calm || w.variant.quorum == lease.None {
		return
	}
	if !a.settled(w) {
		w.after(w.set.lease/2, func() { a.change(w, rng) })
		return
	}
	for _, n := range w.nodes {
		n.remove()
	}
	old, e := a.target.Members, a.target
	if rng.IntN(4) == 0 {
		e.Duration = w.set.lease - between(rng, 0, w.set.lease/3)
	}
	if rng.IntN(2) == 0 {
		e.Members = toggle(old, w.victim(rng).name)
	} else if rng.IntN(2) == 0 || e.Duration == a.target.Duration {
		e.Members = toggle(old, pool[rng.IntN(len(pool))])
	}
	if w.set.restless {
		w.after(between(rng, 0, w.set.lease), func() { a.change(w, rng) })
	}
	if len(e.Members) < 2 || len(e.Members) > 6 {
		return
	}
	a.target = e
	w.log("", "members are to be %v, the lease %v", e.Members, e.Duration)
	w.figures.changes++
	for _, n := range w.nodes {
		switch was, is := slices.Contains(old, n.name), slices.Contains(e.Members, n.name); {
		case is, n.worker() && n.installed && rng.IntN(2) == 0: // or it lags behind
			w.after(between(rng, 0, 2*w.set.lease), n.reload)
		case was && rng.IntN(2) == 0: // it is switched off, sooner or later
			w.after(between(rng, 0, 6*w.set.lease), n.remove)
		case was: // it runs on with its old file until the next change
		}
	}
}

// toggle adds a member, or removes it.
func toggle(members []string, name string) []string {
	i, found := slices.BinarySearch(members, name)
	if members = slices.Clone(members); found {
		return slices.Delete(members, i, i+1)
	}
	return slices.Insert(members, i, name)
}

// settled tells whether every member runs with the electorate wanted.
func (a *admin) settled(w *world) bool {
	for _, name := range a.target.Members {
		n := w.nodes[slices.Index(pool, name)]
		if n.proc == nil || n.proc.paused || !active(n.proc.machine.Status(n.now()), a.target) {
			return false
		}
	}
	return true
}

// reload has a node run with the electorate wanted by now.
func (n *node) reload() {
	e := n.w.admin.target
	if !slices.Contains(e.Members, n.name) && !(n.worker() && n.installed) {
		return
	}
	n.file, n.installed = e, true
	n.start()
	if n.proc != nil {
		n.proc.do(func() { n.proc.reconfigure(3) })
	}
}

// reconfigure has the machine take its config file, and tries again while another
// change is under way. A node that was forgotten for longer, or has not joined the
// others yet, needs a restart.
func (p *process) reconfigure(tries int) {
	p.voted = max(p.voted, p.file.Duration)
	err := p.machine.Reconfigure(p.now(), p.file)
	p.w.log(p.name, "reloads, members %v, lease %v: %v", p.file.Members, p.file.Duration, err)
	p.flush()
	switch {
	case err != nil && tries > 0 && !p.w.calm:
		p.after(p.w.set.lease/3, func() { p.reconfigure(tries - 1) })
	case err != nil:
		p.crash()
		p.w.after(0, p.start)
	}
}

// remove switches a node off unless it is a member. A worker that was one, and does
// not know yet that it is no more, starts with the new file.
func (n *node) remove() {
	e := n.w.admin.target
	switch {
	case !n.installed || slices.Contains(e.Members, n.name):
	case !n.worker():
		n.powerLoss()
		n.installed = false
	case slices.Contains(n.file.Members, n.name):
		n.powerLoss()
		n.file = e
		n.w.after(0, n.start)
	}
}

// members are the nodes that vote.
func (a *admin) members(w *world) []*node {
	var nodes []*node
	for _, name := range a.target.Members {
		nodes = append(nodes, w.nodes[slices.Index(pool, name)])
	}
	return nodes
}

// active tells whether a machine runs with an electorate and waits for no other.
func active(s lease.Status, e lease.Electorate) bool {
	return s.Active != nil && s.Pending == nil && s.Active.Digest() == e.Digest()
}
