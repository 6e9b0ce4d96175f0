package lease

import (
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// Receive processes a message from another member. A sender in neither the committed nor the desired electorate is an
// observer. Receive counts and ignores messages of unknown members, for another process, repeated ones, and those from
// a replaced process.
func (m *Machine) Receive(now time.Time, msg message.Message) {
	m.advance(now)
	if msg.Incarnation == 0 || msg.From == m.self.member {
		m.ignored++
		return
	}
	p := m.peer(msg.From)
	if p == nil {
		p = m.addObserver(msg.From)
	}
	if p == nil {
		m.ignored++
		return
	}
	d := m.duration()
	if msg.Receiver != message.Identity(m.self.member, 0) && msg.Receiver != message.Identity(m.self.member, m.self.incarnation) {
		m.ignored++
		if m.now.Sub(p.introduced) >= d/12 {
			p.introduced = m.now
			p.introduce = true // it addresses an earlier process of this member
		}
		return
	}
	// A process that has timed out may be replaced by one with a lesser incarnation: clocks may go backwards between
	// two starts.
	fresh := p.fresh(m.now, d)
	if msg.Incarnation > p.incarnation || msg.Incarnation < p.incarnation && !fresh {
		p.begin(msg.Incarnation)
		fresh = false
	}
	if msg.Incarnation != p.incarnation || !p.window.Take(msg.Sequence) {
		m.ignored++
		return
	}
	if m.votes(m.self.member) && !m.votes(p.name) && !m.near(p) && m.divergence(p) == "" {
		p.probe = true // an observer that requests votes must know the voters; voters of two clusters would answer each other
	}
	if !fresh && m.active().Quorum == electorate.None {
		p.probe = true // both may hold the same lease, and its vote is needed from now on
	}
	p.received = m.now
	p.mutual = p.mutual || msg.Receiver != message.Identity(m.self.member, 0)
	if msg.Sequence == p.window.Top {
		if p.note(&msg) || !fresh {
			if msg.Electorate != nil && p.described == msg.Electorate {
				m.learn(p, electorate.Committed{Cluster: p.cluster, Number: p.number, Electorate: *p.described})
			}
			if m.greater == nil && m.yieldsTo(p) {
				m.watchQuorum()
			}
			m.agree()
			m.wake(m.now)
		}
		if !m.agrees(p) && m.now.Sub(p.introduced) >= d/12 { // exchange committed electorates
			p.introduced = m.now
			p.probe = true
		}
	}
	if msg.Change != nil {
		m.receiveChange(p, &msg)
	}
	for _, it := range msg.Items {
		m.receiveItem(p, &msg, it)
	}
}

func (m *Machine) receiveItem(p *peer, msg *message.Message, it message.Item) {
	switch {
	case it.Kind == message.Campaign:
		m.receiveCampaign(p, msg, it)
	case it.Kind == message.Unchanged:
		m.receiveUnchanged(p, msg, it.Lease)
	case it.Kind == message.Repeat:
		p.told, p.probe = false, true
	case msg.Receiver == message.Identity(m.self.member, 0):
		m.ignored++ // wait until both know each other's process
	case it.Kind == message.Prepare || it.Kind == message.Propose:
		m.vote(p, msg, it)
	case it.Kind == message.Promise || it.Kind == message.Accept || it.Kind == message.Refuse:
		m.answer(p, it)
	case it.Kind == message.Release:
		m.receiveRelease(p, it)
	}
}

func (m *Machine) receiveCampaign(p *peer, msg *message.Message, it message.Item) {
	before := p.byLease[it.Lease]
	if !p.peerCandidacies.note(m.now, m.duration(), msg.Sequence, it) {
		return
	}
	l, s := m.leases[it.Lease], p.byLease[it.Lease]
	if before == nil && s != nil && !(m.votes(m.self.member) && m.votes(p.name)) {
		p.probe = true // it may not have received this member for a while
	}
	if l != nil && s != nil {
		m.considerRival(l, p, s)
	}
}

// receiveUnchanged confirms a peer's candidacies or requests them again.
func (m *Machine) receiveUnchanged(p *peer, msg *message.Message, digest uint64) {
	d := m.duration()
	switch {
	case msg.Sequence != p.window.Top: // a newer message has arrived
	case p.confirm(m.now, d, msg.Sequence, digest):
		for id, s := range p.byLease {
			if l := m.leases[id]; l != nil && s.epoch != 0 {
				m.considerRival(l, p, s)
			}
		}
	case m.now.Sub(p.asked) >= d/12:
		p.asked = m.now
		m.send(p, message.Item{Kind: message.Repeat})
	}
}

// considerRival handles a peer's candidacy for a lease known here. A member that grants nothing learns the holder from
// the candidates' own words.
func (m *Machine) considerRival(l *lease, p *peer, s *peerCandidacy) {
	if l.candidate == nil {
		return
	}
	if s.epoch != 0 && m.observer() {
		l.noteHolder(m.now, ballot{s.epoch, owner{p.name, p.incarnation}}, m.duration())
	}
	m.endSecondHolder(l, p, s)
}

// sameCommitted reports whether the sender had this member's committed electorate when it sent the message.
func (m *Machine) sameCommitted(msg *message.Message) bool {
	mine := m.state.Committed
	return msg.Number == mine.Number && msg.Cluster == mine.Cluster && msg.Active == m.digest
}

// mayServe reports whether this member votes for the sender of a message: both must have the same committed electorate.
func (m *Machine) mayServe(p *peer, msg *message.Message) bool {
	return m.voter() && m.greater == nil && m.sameCommitted(msg) && (m.active().Quorum == electorate.Majority || m.active().Has(p.name))
}

func (m *Machine) vote(p *peer, msg *message.Message, it message.Item) {
	if !m.noteCounter(it.Counter) {
		m.ignored++
		return
	}
	v := vote{}
	switch {
	case !m.mayServe(p, msg):
		v.remaining = m.duration() / 3
	case m.abstaining():
		v.remaining = m.abstention()
	default:
		l := m.lease(it.Lease, maxLeases)
		if l == nil {
			m.ignored++
			return
		}
		b := ballot{it.Counter, owner{p.name, p.incarnation}}
		if it.Kind == message.Propose {
			v = l.acceptor.propose(m.now, b, m.active().Duration)
		} else if v = l.prepare(m.now, b); v.granted && l.candidate != nil && l.phase == idle {
			l.after = later(l.after, m.now.Add(m.duration()/10)) // leave it time to win
		}
	}
	answer := message.Item{Kind: message.Promise, Lease: it.Lease, Counter: it.Counter, Round: it.Round}
	switch {
	case !v.granted:
		answer.Kind, answer.Promised, answer.Remaining = message.Refuse, v.promised, v.remaining
	case it.Kind == message.Propose:
		answer.Kind = message.Accept
	}
	m.send(p, answer)
}

func (m *Machine) receiveRelease(p *peer, it message.Item) {
	l := m.leases[it.Lease]
	if l == nil || !m.noteCounter(it.Counter) {
		return
	}
	l.release(m.now, ballot{it.Counter, owner{p.name, p.incarnation}}, it.To)
	if l.candidate != nil && l.released.Equal(m.now) {
		l.after, l.attempts = time.Time{}, 0
		m.wake(m.now)
	}
}
