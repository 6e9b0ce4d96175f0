package lease

import (
	"cmp"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// send queues an item for a peer with a known process.
func (m *Machine) send(p *peer, it message.Item) {
	if p.incarnation != 0 {
		p.queue = append(p.queue, it)
	}
}

func (m *Machine) probeAll() {
	m.keepaliveAt = m.now.Add(m.duration() / 3)
	for _, p := range m.peers {
		p.probe = true
	}
}

// announce sends this member's candidacy for a lease to all peers. With many observers and leases, it delays the items
// for observers slightly, to combine them.
func (m *Machine) announce(l *lease) {
	for _, p := range m.peers {
		switch {
		case p.incarnation == 0:
		case p.observer:
			p.late = m.appendCandidacy(p.late, l)
		default:
			p.queue = m.appendCandidacy(p.queue, l)
		}
	}
	if m.lateAt.IsZero() {
		m.lateAt = m.now.Add(m.duration() / 60)
		m.wake(m.lateAt)
	}
}

func (m *Machine) sendLate() {
	if m.lateAt.IsZero() {
		return
	}
	if m.now.Before(m.lateAt) {
		m.wake(m.lateAt)
		return
	}
	m.lateAt = time.Time{}
	for _, p := range m.peers {
		p.queue, p.late = append(p.late, p.queue...), nil
	}
}

// appendCandidacies adds all candidacies of this member; if the peer has received them one by one before, by their
// digest.
func (m *Machine) appendCandidacies(items []message.Item, p *peer) []message.Item {
	digest := uint64(0)
	for _, l := range m.own {
		if !p.told || !l.campaigning {
			items = m.appendCandidacy(items, l)
		}
		if l.campaigning && (m.canWin || l.holds()) {
			digest ^= sum(l.id, l.Priority, l.Preempt, l.epoch)
		}
	}
	if p.told {
		items = append(items, message.Item{Kind: message.Unchanged, Lease: digest})
	}
	p.told = true
	return items
}

// appendCandidacy adds this member's candidacy. For one Duration after its end it adds that end, and the release:
// messages may be lost.
func (m *Machine) appendCandidacy(items []message.Item, l *lease) []message.Item {
	switch {
	case l.campaigning:
		return append(items, message.Item{
			Kind: message.Campaign, Lease: l.id, Priority: l.Priority, Preempt: l.Preempt, Campaigning: m.canWin || l.holds(), Epoch: l.epoch,
		})
	case l.steppedDown.IsZero() || m.now.Sub(l.steppedDown) >= m.duration():
		return items
	case l.ballot.counter != 0:
		items = append(items, message.Item{Kind: message.Release, Lease: l.id, Counter: l.ballot.counter, To: l.appointed})
	}
	return append(items, message.Item{Kind: message.Campaign, Lease: l.id})
}

// Take returns the messages to send and the events since the last Take. Act on a [Lost] before sending anything.
func (m *Machine) Take() ([]message.Outgoing, []Event) {
	var out []message.Outgoing
	for _, p := range m.peers {
		out = m.pack(out, p)
	}
	events := m.events
	m.events = nil
	return out, events
}

// pack turns the queue of a peer into messages.
func (m *Machine) pack(out []message.Outgoing, p *peer) []message.Outgoing {
	items := p.queue
	if p.probe || len(items) > 0 {
		items, p.late = append(p.late, items...), nil
	}
	var describe *electorate.Electorate
	if !m.agrees(p) {
		p.change = nil // it is for members with the same committed electorate
		if p.introduce || p.probe {
			describe = &m.configured.Electorate // the desired one has no members while this member requests a vote
			if m.inForce() {
				describe = m.active()
			}
		}
	}
	if p.introduce { // address any process of it: the known one may be outdated
		out = m.emit(out, p, 0, describe, nil)
	}
	if p.probe {
		items = m.appendCandidacies(items, p)
	}
	if p.probe || len(items) > 0 || p.change != nil {
		receiver := uint64(0)
		if p.incarnation != 0 {
			receiver = message.Identity(p.name, p.incarnation)
		}
		out = m.emit(out, p, receiver, describe, items)
	}
	p.queue, p.probe, p.introduce, p.change = nil, false, false, nil
	return out
}

// emit appends messages that hold all items, at least one message.
func (m *Machine) emit(out []message.Outgoing, p *peer, receiver uint64, describe *electorate.Electorate, items []message.Item) []message.Outgoing {
	for {
		p.sequence++
		msg := message.Message{
			From: m.self.member, Incarnation: m.self.incarnation, Receiver: cmp.Or(receiver, message.Identity(p.name, 0)), Sequence: p.sequence,
			Cluster: m.state.Committed.Cluster, Number: m.state.Committed.Number, Active: m.digest, Desired: m.desired.digest,
			Abstaining: m.abstaining(), Heard: m.hears, Electorate: describe,
		}
		if receiver != 0 {
			msg.Change, p.change = p.change, nil
		}
		n := msg.Room(items)
		msg.Items, items, describe = items[:n:n], items[n:], nil
		out = append(out, message.Outgoing{To: p.name, Message: msg})
		if len(items) == 0 {
			return out
		}
	}
}
