package lease

import (
	"cmp"
	"slices"
	"time"
)

// Receive takes a message from another member. Who is in none of the electorates is a
// guest, if there may be any. What comes from strangers, was meant for another process or an earlier one of this member, was seen before,
// or comes from a process that has been replaced is counted and ignored.
func (m *Machine) Receive(now time.Time, msg Message) {
	m.advance(now)
	if msg.Incarnation == 0 || msg.From == m.self.member {
		m.ignored++
		return
	}
	p := m.peer(msg.From)
	if p == nil {
		p = m.welcome(msg.From)
	}
	if p == nil {
		m.ignored++
		return
	}
	d := m.duration()
	if msg.Receiver != identity(m.self.member, 0) && msg.Receiver != identity(m.self.member, m.self.incarnation) {
		m.ignored++
		if m.now.Sub(p.introduced) >= d/12 {
			p.introduced = m.now
			p.introduce = true // it takes us for an earlier process
		}
		return
	}
	// A process that has been silent for a Duration may be replaced by one whose
	// incarnation is less: clocks may go backwards between two starts.
	heard := p.fresh(m.now, d)
	if msg.Incarnation > p.incarnation || msg.Incarnation < p.incarnation && !heard {
		p.begin(msg.Incarnation, m.boundBy(p))
		heard = false
	}
	if msg.Incarnation != p.incarnation || !p.window.take(msg.Sequence) {
		m.ignored++
		return
	}
	if m.votes(m.self.member) && !m.votes(p.name) && !m.near(p) {
		p.greet = true // a guest that wants votes has to hear who gives them
	}
	p.heard = m.now
	if msg.Sequence == p.window.top {
		if p.note(&msg) || !heard {
			m.agree()
			m.wake(m.now)
		}
	}
	for _, it := range msg.Items {
		m.receiveItem(p, &msg, it)
	}
}

func (m *Machine) receiveItem(p *peer, msg *Message, it Item) {
	switch {
	case it.Kind == Stand:
		m.receiveStand(p, msg, it)
	case it.Kind == Unchanged:
		m.receiveUnchanged(p, msg, it.Lease)
	case it.Kind == Repeat:
		p.told, p.greet = false, true
	case msg.Receiver == identity(m.self.member, 0):
		m.ignored++ // not before both know which process the other is
	case it.Kind == Prepare || it.Kind == Propose:
		m.vote(p, msg, it)
	case it.Kind == Promise || it.Kind == Accept || it.Kind == Refuse:
		m.answer(p, it)
	case it.Kind == Release:
		m.receiveRelease(p, it)
	}
}

func (m *Machine) receiveStand(p *peer, msg *Message, it Item) {
	before := p.stands[it.Lease]
	if !p.standings.note(m.now, m.duration(), msg.Sequence, it) {
		return
	}
	l, s := m.leases[it.Lease], p.stands[it.Lease]
	if before == nil && s != nil && !(m.votes(m.self.member) && m.votes(p.name)) {
		p.greet = true // it may not have heard of us for a while
	}
	if l != nil && s != nil {
		m.watch(l, p, s)
	}
}

// receiveUnchanged takes that a peer's candidacies are what they were, or asks for them.
func (m *Machine) receiveUnchanged(p *peer, msg *Message, digest uint64) {
	d := m.duration()
	switch {
	case msg.Sequence != p.window.top: // there is newer news
	case p.confirm(m.now, d, msg.Sequence, digest):
		for id, s := range p.stands {
			if l := m.leases[id]; l != nil && s.epoch != 0 {
				m.watch(l, p, s)
			}
		}
	case m.now.Sub(p.asked) >= d/12:
		p.asked = m.now
		m.send(p, Item{Kind: Repeat})
	}
}

// watch looks at a peer's candidacy for a lease that this member stands for, too. A
// member that grants nothing learns what those know who do: who says so holds it.
func (m *Machine) watch(l *lease, p *peer, s *stand) {
	if l.candidate == nil {
		return
	}
	if s.epoch != 0 && m.guest() {
		l.see(m.now, ballot{s.epoch, owner{p.name, p.incarnation}}, m.duration())
	}
	m.settle(l, p, s)
}

// vote answers a candidate's question.
func (m *Machine) vote(p *peer, msg *Message, it Item) {
	if !m.see(it.Counter) {
		m.ignored++
		return
	}
	v := verdict{}
	d, may := m.mayServe(msg)
	switch {
	case !may:
		v.remaining = m.duration() / 3
	case m.now.Before(p.bound):
		v.remaining = p.bound.Sub(m.now)
	case m.abstaining():
		v.remaining = m.abstain.Sub(m.now)
	default:
		l := m.lease(it.Lease, maxLeases)
		if l == nil {
			m.ignored++
			return
		}
		b := ballot{it.Counter, owner{p.name, p.incarnation}}
		if it.Kind == Propose {
			v = l.acceptor.propose(m.now, b, d)
		} else if v = l.prepare(m.now, b); v.granted && l.candidate != nil && l.phase == idle {
			l.after = later(l.after, m.now.Add(m.duration()/10)) // let it try
		}
	}
	answer := Item{Kind: Promise, Lease: it.Lease, Counter: it.Counter, Round: it.Round}
	switch {
	case !v.granted:
		answer.Kind, answer.Promised, answer.Remaining = Refuse, v.promised, v.remaining
	case it.Kind == Propose:
		answer.Kind = Accept
	}
	m.send(p, answer)
}

func (m *Machine) receiveRelease(p *peer, it Item) {
	l := m.leases[it.Lease]
	if l == nil || !m.see(it.Counter) {
		return
	}
	l.release(m.now, ballot{it.Counter, owner{p.name, p.incarnation}}, it.To)
	if l.candidate != nil && l.released.Equal(m.now) {
		l.after, l.attempts = time.Time{}, 0
		m.wake(m.now)
	}
}

// see takes note of a ballot's counter, unless it is absurd.
func (m *Machine) see(counter uint64) bool {
	if counter > m.highest+maxJump {
		return false
	}
	m.highest = max(m.highest, counter)
	return true
}

// peer returns the peer of that name, nil if it is none.
func (m *Machine) peer(name string) *peer {
	if at, found := slices.BinarySearchFunc(m.peers, name, byName); found {
		return m.peers[at]
	}
	return nil
}

// send queues an item for a peer whose process is known.
func (m *Machine) send(p *peer, it Item) {
	if p.incarnation != 0 {
		p.queue = append(p.queue, it)
	}
}

// announce tells all peers of this member's candidacy for a lease. There may be many
// guests and many leases: a moment later they are told of all at once.
func (m *Machine) announce(l *lease) {
	for _, p := range m.peers {
		switch {
		case p.incarnation == 0:
		case p.guest:
			p.late = m.appendStand(p.late, l)
		default:
			p.queue = m.appendStand(p.queue, l)
		}
	}
	if m.lateAt.IsZero() {
		m.lateAt = m.now.Add(m.duration() / 60)
		m.wake(m.lateAt)
	}
}

// sendLate sends what has waited long enough.
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

// appendStands describes all of this member's candidacies to a peer, by their digest
// if it was told of them one by one.
func (m *Machine) appendStands(items []Item, p *peer) []Item {
	digest := uint64(0)
	for _, l := range m.own {
		if !p.told || !l.standing {
			items = m.appendStand(items, l)
		}
		if l.standing && (m.canWin || l.holds()) {
			digest ^= sum(l.id, l.Priority, l.Preempt, l.epoch)
		}
	}
	if p.told {
		items = append(items, Item{Kind: Unchanged, Lease: digest})
	}
	p.told = true
	return items
}

// appendStand describes this member's candidacy. One that has ended is told of
// for one Duration, and the release with it: messages get lost.
func (m *Machine) appendStand(items []Item, l *lease) []Item {
	switch {
	case l.standing:
		return append(items, Item{
			Kind: Stand, Lease: l.id, Priority: l.Priority, Preempt: l.Preempt, Standing: m.canWin || l.holds(), Epoch: l.epoch,
		})
	case l.resigned.IsZero() || m.now.Sub(l.resigned) >= m.duration():
		return items
	case l.ballot.counter != 0:
		items = append(items, Item{Kind: Release, Lease: l.id, Counter: l.ballot.counter, To: l.heir})
	}
	return append(items, Item{Kind: Stand, Lease: l.id})
}

// Take returns what is to be sent and what has changed, since the last Take. Act
// upon a [Lost] before anything is sent.
func (m *Machine) Take() ([]Outgoing, []Event) {
	var out []Outgoing
	for _, p := range m.peers {
		out = m.pack(out, p)
	}
	events := m.events
	m.events = nil
	return out, events
}

// pack turns what is to be said to a peer into messages.
func (m *Machine) pack(out []Outgoing, p *peer) []Outgoing {
	items := p.queue
	if p.greet || len(items) > 0 {
		items, p.late = append(p.late, items...), nil
	}
	var describe []Electorate
	if (p.introduce || p.greet) && m.votes(m.self.member) {
		for _, r := range []*roll{m.active, m.pending} {
			if r != nil {
				describe = append(describe, r.Electorate)
			}
		}
	}
	if p.introduce { // as to one of whom nothing is known: what we know may be wrong
		out = m.emit(out, p, 0, describe, nil)
	}
	if p.greet {
		items = m.appendStands(items, p)
	}
	if p.greet || len(items) > 0 {
		receiver := uint64(0)
		if p.incarnation != 0 {
			receiver = identity(p.name, p.incarnation)
		}
		out = m.emit(out, p, receiver, describe, items)
	}
	p.queue, p.greet, p.introduce = nil, false, false
	return out
}

// emit appends messages to a peer that hold all the items, at least one message.
func (m *Machine) emit(out []Outgoing, p *peer, receiver uint64, describe []Electorate, items []Item) []Outgoing {
	for {
		p.sequence++
		msg := Message{
			From: m.self.member, Incarnation: m.self.incarnation, Receiver: cmp.Or(receiver, identity(p.name, 0)), Sequence: p.sequence,
			Active: m.active.sum(), Pending: m.pending.sum(),
			Abstaining: m.abstaining(), Settled: !m.now.Before(m.settled), Electorates: describe,
		}
		n := msg.room(items)
		msg.Items, items, describe = items[:n:n], items[n:], nil
		out = append(out, Outgoing{To: p.name, Message: msg})
		if len(items) == 0 {
			return out
		}
	}
}
