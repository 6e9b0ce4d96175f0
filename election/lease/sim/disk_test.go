package sim

import (
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// disk keeps a node's state. It may be slow, fail for a while, or fill up.
type disk struct {
	lease.State
	next  *lease.State  // being written: a crash leaves this or the one before; nil: none
	delay time.Duration // of a write, at most
	bad   bool          // writes fail
}

// states returns the states that the node may have after a crash, and the state that it acts upon.
func (d *disk) states() []lease.State {
	if d.next != nil {
		return []lease.State{d.State, *d.next}
	}
	return []lease.State{d.State}
}

// write stores the state that the machine must not forget, while the process goes on. A later state replaces an earlier one.
func (p *process) write() {
	s, changed := p.machine.Unsaved()
	if !changed {
		return
	}
	p.disk.next = &s
	p.w.checkRecord(p.name, s.Committed)
	p.store(&s)
	if p.w.variant.noStoring {
		p.after(0, p.stored)
	}
}

// store writes a state, again after a failure.
func (p *process) store(s *lease.State) {
	w := p.w
	delay := p.disk.delay
	if w.calm {
		delay = w.set.latency
	}
	w.after(w.between(0, delay), func() {
		switch {
		case p.node.proc != p || p.disk.next != s:
		case p.disk.bad && !w.calm:
			p.store(s)
		default:
			p.disk.State, p.disk.next = *s, nil
			w.log(p.name, "has electorate %d on disk, promise %v, acceptance %v", s.Committed.Number, s.Promised, s.Accepted)
			if !w.variant.noStoring {
				p.do(p.stored)
			}
		}
	})
}

func (p *process) stored() {
	if p.disk.next == nil || p.w.variant.noStoring {
		p.machine.Stored(p.now())
		p.flush()
	}
}

// checkStored requires that each promise in a message about the next electorate is on disk.
func (p *process) checkStored(m message.Message) {
	d := p.disk.State
	if c := m.Change; c != nil && c.Phase == message.Proposed {
		p.w.proposed = append(p.w.proposed, lease.State{Committed: d.Committed, Value: c.Value})
	}
	if c := m.Change; c != nil && !p.w.variant.noStoring && (d.Committed.Number != m.Number ||
		c.Phase == message.Promised && d.Promised.Less(c.Ballot) || c.Phase == message.Accepted && d.Accepted.Less(c.Ballot)) {
		p.w.fail("not on disk", "%s sends %+v, its disk has electorate %d, promise %v, acceptance %v", p.name, *c, d.Committed.Number, d.Promised, d.Accepted)
	}
}

// checkRecord requires that each number is chosen once.
func (w *world) checkRecord(node string, r electorate.Committed) {
	before, known := w.check.records[[2]uint64{r.Cluster, r.Number}]
	if known && before != r.Digest() && w.variant.watchesHolds() {
		w.fail("two records", "%s has another electorate %d: %v", node, r.Number, r)
	}
	w.check.records[[2]uint64{r.Cluster, r.Number}] = r.Digest()
}

// crash ends a write: it is done, or it is not.
func (d *disk) crash(w *world) {
	if d.next != nil && w.chance(0.5) {
		d.State = *d.next
	}
	d.next = nil
}
