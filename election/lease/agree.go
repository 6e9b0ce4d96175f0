package lease

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// This file chooses the next committed electorate by a majority of the voters of the present one (single-decree Paxos:
// Lamport, "Paxos Made Simple", section 2). Each number is chosen once, so no two committed electorates share a number.
// Ballots and acceptors in this file concern the electorate; for leases, see acceptor.go.

// attempt is this member's attempt to commit the next electorate.
type attempt struct {
	ballot   message.Ballot
	value    *electorate.Electorate
	accepted message.Ballot // ballot of an acceptor that accepted value before, if any
	proposed bool
	votes    []string // of the current phase
	ends     time.Time
}

// change proposes the desired electorate of this member as the next one, once that is possible.
func (m *Machine) change() {
	ready := m.desiredIsReady()
	if m.greater != nil || !ready && (m.state.Value == nil && m.removing == "" || !m.voter() || m.now.Before(m.settled)) {
		m.attempt, m.attemptAt = nil, time.Time{}
		return
	}
	switch {
	case m.attempt != nil && m.now.Before(m.attempt.ends):
		m.wake(m.attempt.ends)
		return
	case m.attempt != nil && m.removing != "": // the operator's command repeats the request
		m.attempt, m.attemptAt, m.removing = nil, time.Time{}, ""
		m.wake(m.now)
		return
	case m.attempt != nil, m.attemptAt.IsZero(): // the voters take turns, so that their attempts do not collide
		turn := time.Duration(slices.Index(m.active().Members, m.self.member))
		m.attempt, m.attemptAt = nil, m.now.Add(turn*m.duration()/10)
	}
	if m.now.Before(m.attemptAt) {
		m.wake(m.attemptAt)
		return
	}
	value := *m.active() // a value that was accepted and then withdrawn is chosen or replaced while all voters answer
	switch {
	case m.removing != "":
		value.Members = slices.DeleteFunc(slices.Clone(value.Members), func(name string) bool { return name == m.removing })
	case ready:
		value = value.Step(m.desired.Electorate, m.unavailable())
	}
	m.highestAttempt = max(m.highestAttempt, m.state.Promised.Counter) + 1
	m.attempt = &attempt{ballot: message.Ballot{Counter: m.highestAttempt, Owner: message.Identity(m.self.member, m.self.incarnation)}, value: &value, ends: m.now.Add(m.duration() / 3)}
	m.wake(m.attempt.ends)
	m.sendChange(message.Change{Phase: message.Asked, Ballot: m.attempt.ballot})
}

// desiredIsReady reports whether the committed electorate may change towards this member's desired one. All desired
// members and a majority of the present voters must desire it, so that the change leaves no uninformed member behind.
// Without a quorum, all reachable voters must. This member stores its own promise on disk before it asks others, so it
// asks only when it may promise.
func (m *Machine) desiredIsReady() bool {
	if !m.voter() || m.now.Before(m.settled) || m.desired.digest == m.digest {
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

// unavailable lists voters that may not vote: they have timed out or do not desire the change.
func (m *Machine) unavailable() []string {
	return slices.DeleteFunc(slices.Clone(m.active().Members), func(name string) bool {
		p := m.peer(name)
		return p == nil || m.ready(p)
	})
}

// viable reports whether a majority of the proposed electorate is up. Present voters count only if they have promised,
// because one received a moment ago may have died since.
func (m *Machine) viable(b *attempt) bool {
	count := 0
	for _, name := range b.value.Members {
		p := m.peer(name)
		if slices.Contains(b.votes, name) || p != nil && !m.active().Has(name) && p.fresh(m.now, m.duration()) {
			count++
		}
	}
	return b.value.Quorum == electorate.None || count >= b.value.Majority()
}

// agrees reports whether a peer has the same committed electorate.
func (m *Machine) agrees(p *peer) bool {
	return p.number == m.state.Committed.Number && p.cluster == m.state.Committed.Cluster && p.active == m.digest
}

// sendChange sends c to the voters. This member answers it at once.
func (m *Machine) sendChange(c message.Change) {
	for _, p := range m.peers {
		if m.active().Has(p.name) {
			p.change = &c
		}
	}
	if m.voter() {
		if answer := m.considerChange(c); answer != nil {
			m.countChange(m.self.member, *answer)
		}
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
		p.change = m.considerChange(*msg.Change)
	default:
		m.countChange(p.name, *msg.Change)
	}
}

// considerChange answers as an acceptor. It accepts nothing until all leases under earlier electorates have ended, as
// far as this member voted for them. So all of them have ended when a majority has accepted.
func (m *Machine) considerChange(c message.Change) *message.Change {
	switch {
	case m.now.Before(m.settled), m.greater != nil, c.Ballot.Counter > m.state.Promised.Counter+maxJump:
		return nil
	case c.Ballot.Less(m.state.Promised):
		return &message.Change{Phase: message.Refused, Ballot: m.state.Promised}
	case c.Phase == message.Asked:
		m.state.Promised, m.unsaved = c.Ballot, true
		return &message.Change{Phase: message.Promised, Ballot: c.Ballot, Accepted: m.state.Accepted, Value: m.state.Value}
	case c.Value == nil:
		return nil
	}
	m.state.Promised, m.state.Accepted, m.state.Value, m.unsaved = c.Ballot, c.Ballot, c.Value, true
	return &message.Change{Phase: message.Accepted, Ballot: c.Ballot}
}

// countChange counts an answer as a proposer. A value that an acceptor has accepted may have been chosen: it is
// proposed instead of the desired electorate (Paxos, phase 2a).
func (m *Machine) countChange(from string, c message.Change) {
	b := m.attempt
	switch {
	case c.Phase == message.Refused && c.Ballot.Counter <= m.highestAttempt+maxJump:
		m.highestAttempt = max(m.highestAttempt, c.Ballot.Counter)
		return
	case b == nil || c.Ballot != b.ballot || b.proposed != (c.Phase == message.Accepted):
		return
	}
	if c.Phase == message.Promised && c.Value != nil && !c.Accepted.Less(b.accepted) {
		b.accepted, b.value = c.Accepted, c.Value
	}
	b.votes = append(b.votes, from)
	switch {
	case !m.elected(b.votes):
	case b.proposed:
		m.adopt(m.state.Committed.Next(*b.value))
	case !m.viable(b): // keep the committed electorate: a majority of the proposed one has timed out
	default:
		b.proposed, b.votes = true, nil
		m.sendChange(message.Change{Phase: message.Proposed, Ballot: b.ballot, Value: b.value})
	}
}
