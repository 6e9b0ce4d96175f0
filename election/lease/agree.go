package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// This file chooses the next committed electorate by a majority of the voters of the present one (single-decree Paxos:
// Lamport, "Paxos Made Simple", section 2). Each number is chosen once, so no two committed electorates share a number.
// Ballots and acceptors in this file concern the electorate; for leases, see acceptor.go.

// attemptTime is how long an attempt waits for the disks of the voters, at least.
const attemptTime = 20 * time.Second

// attempt is this member's attempt to commit the next electorate.
type attempt struct {
	ballot   message.Ballot
	value    *electorate.Electorate // proposed, or accepted before by an acceptor; nil: none yet
	accepted message.Ballot         // ballot of that acceptor
	proposed bool
	votes    []string  // of the current phase
	ends     time.Time // zero: this member's own promise is not on disk yet
	resend   time.Time
}

// change proposes the desired electorate of this member as the next one, once that is possible.
func (m *Machine) change() {
	possible := m.voter() && m.greater == nil && m.electable() && !m.now.Before(m.settled)
	if !possible || m.state.Value == nil && m.removing == "" && !m.desiredIsReady() {
		if m.attempt = nil; !m.now.Before(m.attemptAt) {
			m.attemptAt = time.Time{}
		}
		return
	}
	switch b := m.attempt; {
	case b != nil && b.ends.IsZero():
		return
	case b != nil && m.now.Before(b.ends):
		if !m.now.Before(b.resend) {
			m.concludeChange(b) // the proposed members may be up by now
			if m.attempt == b {
				m.sendChange(b)
			}
		}
		m.wake(b.resend)
		return
	case b != nil && m.removing != "": // the operator's command repeats the request
		m.attempt, m.attemptAt, m.removing = nil, time.Time{}, ""
		m.wake(m.now)
		return
	case b != nil, m.attemptAt.IsZero():
		m.attempt, m.attemptAt = nil, m.now.Add(m.turn())
	}
	if m.now.Before(m.attemptAt) {
		m.wake(m.attemptAt)
		return
	}
	if m.pending != nil {
		return
	}
	m.highestAttempt = max(m.highestAttempt, m.state.Promised.Counter) + 1
	b := &attempt{ballot: message.Ballot{Counter: m.highestAttempt, Owner: message.Identity(m.self.member, m.self.incarnation)}}
	m.attempt = b
	m.considerChange(message.Change{Phase: message.Asked, Ballot: b.ballot}, m.countOwnChange)
}

// giveWay leaves the attempt to the proposer of a greater ballot, as long as that repeats its requests.
func (m *Machine) giveWay(b message.Ballot) {
	if m.attempt == nil || m.attempt.ballot.Less(b) {
		m.attempt, m.attemptAt = nil, later(m.attemptAt, m.now.Add(m.duration()+m.turn()))
	}
}

// turn is the delay of this voter's attempts, so that the attempts of several voters do not collide.
func (m *Machine) turn() time.Duration {
	return time.Duration(slices.Index(m.active().Members, m.self.member)) * m.duration() / 10
}

// successor returns the electorate that this member would have follow the present one.
func (m *Machine) successor() *electorate.Electorate {
	value := *m.active() // a value that was accepted and then withdrawn is chosen or replaced while all voters answer
	switch {
	case m.removing != "":
		value.Members = slices.DeleteFunc(slices.Clone(value.Members), func(name string) bool { return name == m.removing })
	case m.desiredIsReady():
		value = value.Step(m.desired.Electorate, m.unavailable())
	}
	return &value
}

// desiredIsReady reports whether the committed electorate may change towards this member's desired one. All desired
// members and a majority of the present voters must desire it, so that the change leaves no uninformed member behind.
// Without a quorum, all reachable voters must.
func (m *Machine) desiredIsReady() bool {
	if m.desired.digest == m.digest {
		return false
	}
	agree := []string{m.self.member}
	for _, p := range m.peers {
		switch {
		case p.observer || !p.fresh(m.now, m.duration()):
		case m.ready(p):
			if m.agrees(p) {
				agree = append(agree, p.name)
			}
		case m.active().Quorum == electorate.None:
			return false
		}
	}
	return m.elected(agree) && (m.active().Quorum == electorate.None || len(m.notReady()) == 0)
}

// unavailable lists voters that may not vote: they have timed out, do not desire the change, or have no electorate.
func (m *Machine) unavailable() []string {
	return slices.DeleteFunc(slices.Clone(m.active().Members), func(name string) bool {
		p := m.peer(name)
		return p == nil || m.ready(p) && p.number > 0
	})
}

// viable reports whether a majority of a proposed electorate is up. Present voters count only if they have promised too,
// because one received a moment ago may have died since.
func (m *Machine) viable(value *electorate.Electorate, promised []string) bool {
	count := 0
	for _, name := range value.Members {
		p := m.peer(name)
		promised := slices.Contains(promised, name) || !m.active().Has(name)
		if name == m.self.member || p != nil && p.fresh(m.now, m.duration()) && promised {
			count++
		}
	}
	return value.Quorum == electorate.None || count >= value.Majority()
}

// agrees reports whether a peer has the same committed electorate.
func (m *Machine) agrees(p *peer) bool {
	return p.number == m.state.Committed.Number && p.cluster == m.state.Committed.Cluster && p.active == m.digest
}

// sendChange sends the request of the attempt's phase to the voters, this member included.
func (m *Machine) sendChange(b *attempt) {
	c := message.Change{Phase: message.Asked, Ballot: b.ballot}
	if b.proposed {
		c.Phase, c.Value = message.Proposed, b.value
	}
	b.resend = m.now.Add(m.duration() / 3)
	m.wake(b.resend)
	for _, p := range m.peers {
		if m.active().Has(p.name) {
			p.change = &c
		}
	}
	if !slices.Contains(b.votes, m.self.member) {
		m.considerChange(c, m.countOwnChange)
	}
}

// receiveChange handles a voter's step towards the electorate after the committed one.
func (m *Machine) receiveChange(p *peer, msg *message.Message) {
	value := msg.Change.Value
	if !m.voter() || !m.sameCommitted(msg) || !m.active().Has(p.name) || value != nil && !m.state.Committed.Leads(*value) {
		m.ignored++
		return
	}
	switch msg.Change.Phase {
	case message.Asked, message.Proposed:
		if !msg.Change.Ballot.Less(m.state.Promised) {
			m.giveWay(msg.Change.Ballot)
		}
		m.considerChange(*msg.Change, func(answer message.Change) { p.change = &answer })
	default:
		m.countChange(p.name, *msg.Change)
	}
}

// considerChange answers as an acceptor, by rule 8 and once the answer is on disk. A proposer repeats a request that finds
// the disk busy.
func (m *Machine) considerChange(c message.Change, answer func(message.Change)) {
	next, reply := m.state, message.Change{Phase: message.Accepted, Ballot: c.Ballot}
	switch {
	case m.now.Before(m.settled), m.greater != nil, c.Ballot.Counter > m.state.Promised.Counter+maxJump:
		return
	case c.Ballot.Less(m.state.Promised):
		answer(message.Change{Phase: message.Refused, Ballot: m.state.Promised})
		return
	case c.Phase == message.Asked:
		next.Promised = c.Ballot
		reply = message.Change{Phase: message.Promised, Ballot: c.Ballot, Accepted: next.Accepted, Value: next.Value}
	case c.Value == nil:
		return
	default:
		next.Promised, next.Accepted, next.Value = c.Ballot, c.Ballot, c.Value
		next.Longest = max(next.Longest, c.Value.Duration) // to vote under it at once
	}
	switch {
	case next.Promised == m.state.Promised && next.Accepted == m.state.Accepted:
		answer(reply) // again
	case m.pending == nil:
		m.stage(next, func() { m.state = next; answer(reply) })
	}
}

func (m *Machine) countOwnChange(c message.Change) { m.countChange(m.self.member, c) }

// countChange counts an answer as a proposer. A value that an acceptor has accepted may have been chosen: it is
// proposed instead of the desired electorate (Paxos, phase 2a).
func (m *Machine) countChange(from string, c message.Change) {
	b := m.attempt
	switch {
	case c.Phase == message.Refused && c.Ballot.Counter < m.state.Promised.Counter+maxJump:
		if m.highestAttempt = max(m.highestAttempt, c.Ballot.Counter); b != nil {
			m.giveWay(c.Ballot)
		}
		return
	case b == nil || c.Ballot != b.ballot || b.proposed != (c.Phase == message.Accepted):
		return
	}
	if c.Phase == message.Promised && c.Value != nil && !c.Accepted.Less(b.accepted) {
		b.accepted, b.value = c.Accepted, c.Value
	}
	if !slices.Contains(b.votes, from) {
		b.votes = append(b.votes, from)
	}
	if b.ends.IsZero() { // this member's own promise is on disk
		b.ends = m.now.Add(max(20*m.duration(), attemptTime))
		m.sendChange(b)
	}
	m.concludeChange(b)
}

// concludeChange ends the attempt's phase if it has its votes.
func (m *Machine) concludeChange(b *attempt) {
	switch value := cmp.Or(b.value, m.successor()); {
	case !m.elected(b.votes):
	case b.proposed:
		m.adopt(m.state.Committed.Next(*b.value))
	case !m.viable(value, b.votes): // keep the committed electorate: a majority of the proposed one has timed out
		if !m.now.Before(b.resend) {
			m.removing = ""
		}
	default:
		b.value, b.proposed, b.votes = value, true, nil
		m.sendChange(b)
	}
}
