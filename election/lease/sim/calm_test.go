package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// After the chaos comes a calm: every member runs, campaigns and reaches every other. It has its own rules: a
// holder is found soon, nothing moves without a cause, and single faults last no longer than stated.

// The bounds, with D for the lease's Duration and r for a round trip including the steps of the processes:
//
//	recovery  3 D           from the calm to a holder that keeps the VIP. Depending on the chaos, members
//	                        agree on the electorate, restarted ones abstain, and orphaned leases end
//	takeover  1.6 D + 4 r   from a holder's end to the next answer. The lease ends, after 1.15 D by a clock an
//	                        eighth slow; candidates wait for their turn, and once more if they collide
//	stuck     0.7 D         more from the moment at which the holder's speaker is stuck. Nobody answers for a
//	                        takeover at most: the kernel goes on for a while. Without a quorum the other member
//	                        also waits until this one counts as failed
//	handover  0.1 D + 4 r   without an answer when the holder hands over
const (
	recovery = 3.0
	takeover = 1.6
	stuck    = 0.7
	handover = 0.1
)

func (w *world) leases(n float64) time.Duration { return time.Duration(n * float64(w.set.lease)) }

// round returns the maximum time for a message, its answer, and the steps of the processes.
func (w *world) round() time.Duration {
	return 2*(w.set.delay+w.set.jitter) + 8*w.set.latency
}

// bound returns so many leases plus four round trips.
func (w *world) bound(leases float64) time.Duration { return w.leases(leases) + 4*w.round() }

// soothe ends the chaos.
func (w *world) soothe() {
	w.log("", "CALM")
	w.calm = true
	seen := w.net.seen
	w.net = newNetwork(len(pool))
	w.net.seen = seen
	for _, n := range w.nodes {
		if (n.disk.Committed.Number > 0 || n.installs > 0) && !w.admin.begins() {
			n.installed = true // its vote may be needed again
		}
		n.reload()
		clear(n.unsound)
		if p := n.proc; p != nil {
			if p.disk.next != nil {
				p.store(p.disk.next)
			}
			p.until = w.now
			p.resume()
			p.do(p.speaker.work)
		}
	}
}

// settle waits for the calm to take effect.
func (w *world) settle() {
	began := w.now
	w.run(began + w.leases(recovery))
	w.settled = true
	for v := range w.set.vips {
		took, yes := w.recovered(&w.check.answers[v], began)
		w.figures.recovery.note(took, w.set.lease, w.seed)
		if !yes {
			w.fail("no holder", "nobody answers for vip%d, or not for long, within %v of the calm", v, w.now-began)
		}
	}
	for range 40 { // up to twelve members change, one at a time
		if w.admin.done(w) {
			break
		}
		w.run(w.now + w.leases(1))
	}
	if !w.admin.done(w) {
		w.fail("no change", "the members are not %v after %v of calm", w.admin.target, w.now-began)
	}
	if w.set.preempt {
		w.run(w.now + w.leases(3)) // a preempting candidate must have campaigned for a while
	}
	began = w.now
	w.run(w.now + w.leases(2))
	for v := range w.set.vips {
		w.undisturbed(v, began, w.now)
		w.preferred(v)
	}
}

// recovered returns the time from began until a node answered with no gap longer than a handover.
func (w *world) recovered(l *history, began instant) (took time.Duration, yes bool) {
	until := began
	for _, e := range l.within(began, w.now) {
		if e.start > until && (until == began || e.start-until > w.bound(handover)) {
			took = e.start - began
		}
		until = max(until, e.end)
	}
	return took, until+w.bound(handover) >= w.now
}

// preferred requires that no candidate should have preempted the holder.
func (w *world) preferred(v int) {
	holder := w.check.answers[v].at(w.now)
	for _, n := range w.running() {
		if c := n.want[v]; holder >= 0 && c.Preempt && c.Priority > w.nodes[holder].want[v].Priority {
			w.fail("preempt", "%s holds vip%d, %s should", w.nodes[holder].name, v, n.name)
		}
	}
}

// undisturbed requires that one node answers for a VIP throughout.
func (w *world) undisturbed(v int, start, end instant) {
	if l := &w.check.answers[v]; w.broken == nil && !l.steady(start, end) {
		w.fail("moved", "vip%d moved without a cause: %v", v, l.within(start, end))
		if w.broken.at = start; l.at(start) >= 0 {
			w.broken.at = l.within(start, end)[0].end
		}
	}
}

// bystander applies a fault to a node that holds nothing.
func (w *world) bystander(rng *rand.Rand) {
	n := w.idle()
	if n == nil || w.broken != nil {
		return
	}
	began, mend := w.now, func() {}
	switch kind := rng.IntN(4); kind {
	case 0:
		n.crash()
		w.after(between(rng, 0, w.leases(2)), n.start)
	case 1:
		n.proc.pause(between(rng, 0, w.leases(2)))
	default:
		mend = w.net.sever(func(src, dst int) bool { return src == n.index && kind != 2 || dst == n.index })
	}
	w.log(n.name, "BYSTANDER suffers")
	w.run(w.now + w.leases(3))
	mend()
	w.run(w.now + w.leases(2))
	for v := range w.set.vips {
		w.undisturbed(v, began, w.now)
	}
}

// running returns the nodes that campaign, with or without a vote.
func (w *world) running() []*node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return !n.installed })
}

// idle returns a member that holds nothing and is not needed for a majority.
func (w *world) idle() *node {
	if len(w.admin.membersOf(w, w.admin.target)) < 3 {
		return nil
	}
	running := w.running()
	w.rng.Shuffle(len(running), func(i, j int) { running[i], running[j] = running[j], running[i] })
	for _, n := range running {
		holds := false
		for v := range w.set.vips {
			holds = holds || w.check.answers[v].at(w.now) == n.index
		}
		if !holds {
			return n
		}
	}
	return nil
}

// vanish removes the holder of the first VIP and brings it back.
func (w *world) vanish(rng *rand.Rand) {
	alone := w.variant.quorum == electorate.None
	if w.broken != nil || len(w.admin.membersOf(w, w.admin.target)) < 3 && !alone {
		return
	}
	n, began := w.nodes[w.check.answers[0].at(w.now)], w.now
	w.log(n.name, "VANISHES")
	mend, kinds, bound, silent := func() {}, 5, w.bound(takeover), w.bound(takeover)
	if alone {
		kinds = 3 // a pause or a cut may cause two holders
	}
	switch rng.IntN(kinds) {
	case 0:
		n.crash()
	case 1:
		n.powerLoss()
	case 2:
		n.proc.speaker.hang(w.leases(3))
		if bound = w.bound(takeover + stuck); alone {
			silent = bound
		}
	case 3:
		n.proc.pause(w.leases(2))
	case 4:
		mend = w.net.sever(func(src, dst int) bool { return src == n.index || dst == n.index })
	}
	w.run(w.now + w.leases(2))
	mend()
	n.start()
	w.run(w.now + w.leases(3))
	took := w.moved("takeover", n, began, bound)
	if gap := w.check.answers[0].gap(began, w.now); w.broken == nil && gap > silent {
		w.fail("takeover", "nobody answers for vip0 for %v, allowed are %v", gap, silent)
	}
	w.figures.takeover.note(took, w.set.lease, w.seed)
}

// yield makes the checks of the first VIP's holder fail for a moment.
func (w *world) yield() {
	w.run(w.now + w.leases(2)) // the nodes that stepped down campaign again
	holder := w.check.answers[0].at(w.now)
	if w.broken != nil || holder < 0 {
		return
	}
	n, began := w.nodes[holder], w.now
	n.judge(0, false)
	w.run(w.now + w.leases(0.5))
	n.judge(0, true)
	w.run(w.now + w.leases(2))
	gap := w.moved("handover", n, began, w.bound(handover))
	w.figures.handover.note(gap, w.set.lease, w.seed)
}

// moved requires that the first VIP moved away from a node soon, and stayed unless candidates preempt. It returns the
// duration of the move, or the longest later gap.
func (w *world) moved(rule string, start *node, began instant, bound time.Duration) time.Duration {
	if w.broken != nil {
		return 0
	}
	l := &w.check.answers[0]
	end := began
	for _, e := range l.within(began, w.now) {
		if e.node != start.index {
			end = e.start
			break
		}
	}
	took := max(end-began, l.gap(began, w.now))
	switch {
	case end == began || took > bound:
		w.fail(rule, "nobody answers for vip0 in place of %s for %v, allowed are %v", start.name, took, bound)
		w.broken.at = began + bound
	case !w.set.preempt:
		w.undisturbed(0, end, w.now)
	}
	return took
}
