package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// State is what a member must remember across its restarts. [Machine.Unsaved] says when it has changed; it
// is to be on disk before a message leaves that was made after that.
type State struct {
	Committed electorate.Committed `json:"Record"` // the last that this member knows of; Number 0: none yet
	// Longest is the longest lease that this member may have voted for, and that may still last.
	Longest time.Duration
	// What this member has promised and accepted for the record after this one.
	Promised, Accepted message.Ballot
	Value              *electorate.Electorate // what it accepted, nil: nothing
}

// maxNumber bounds numbers that are read, so that there is always a next one.
const maxNumber = 1 << 62

// Validate reports what cannot have been remembered, in one sentence.
func (s State) Validate() error {
	switch {
	case s.Committed.Number == 0 || s.Committed.Number > maxNumber:
		return fmt.Errorf("no record has number %d", s.Committed.Number)
	case s.Promised.Counter > maxNumber:
		return fmt.Errorf("no ballot has number %d", s.Promised.Counter)
	case s.Longest > electorate.MaxDuration:
		return fmt.Errorf("the longest lease is %v, want at most %v", s.Longest, electorate.MaxDuration)
	}
	err := s.Committed.Validate()
	if err == nil && s.Value != nil && !s.Committed.Leads(*s.Value) {
		err = fmt.Errorf("%v cannot follow record %d, %v", s.Value, s.Committed.Number, s.Committed)
	}
	return err
}

// Unsaved returns what is to be remembered, and whether that has changed since the last call: who cannot write it has to
// keep it, and to try again.
func (m *Machine) Unsaved() (State, bool) {
	changed := m.unsaved
	m.unsaved = false
	return m.state, changed
}

// inForce reports whether there is a record: until then nobody can win here.
func (m *Machine) inForce() bool { return m.state.Committed.Number > 0 }

// active is the electorate in force.
func (m *Machine) active() *electorate.Electorate { return &m.state.Committed.Electorate }

// voter reports whether this member has a vote in the electorate in force.
func (m *Machine) voter() bool { return m.inForce() && m.active().Has(m.self.member) }

// desired is an electorate: what this member begins with if there is no record, and what it would have the record become.
type desired struct {
	electorate.Electorate
	digest uint64
}

func newDesired(e electorate.Electorate) desired {
	e.Members = slices.Clone(e.Members)
	return desired{e, e.Digest()}
}

// Reconfigure has this member desired for another electorate. The record changes towards it, by one member
// at a time, once all members of the new electorate and a majority of the present one desired for it. A desired may be
// changed at any time. A member without a vote, which gets none by the new one either, follows the voters.
func (m *Machine) Reconfigure(now time.Time, e electorate.Electorate) error {
	if err := e.Validate(); err != nil {
		return err
	}
	m.advance(now)
	m.configured = newDesired(e)
	m.updateDesired()
	m.updatePeers()
	m.probeAll()
	m.agree()
	m.wake(m.now)
	return nil
}

// SetOpen changes how members of an open electorate come and go.
func (m *Machine) SetOpen(o Open) { m.open = &o }

// agree does what is due about the record.
func (m *Machine) agree() {
	m.begin()
	m.change()
	if m.inForce() && !m.now.Before(m.settled) && m.state.Longest != m.state.Committed.Duration {
		m.state.Longest, m.unsaved = m.state.Committed.Duration, true // the longer leases of the records before are over
	}
}

// begin makes the first record of what this member is configured with, once a majority is configured alike and
// has no record either. Who hears of a record takes that instead.
func (m *Machine) begin() {
	if m.inForce() || m.observer() {
		return
	}
	m.problem = ""
	heard := m.abstain.Add(-m.duration() / 20) // in time to vote and win as soon as this member does
	if m.open != nil {
		heard = later(heard, m.started.Add(listens))
	}
	if m.now.Before(heard) && m.desired.Quorum == electorate.Majority {
		m.problem = "listens whether the members have agreed on an electorate before"
		m.wake(heard)
		return
	}
	waiting, other := 1, ""
	for _, p := range m.peers {
		switch {
		case !m.desired.Has(p.name) || !p.fresh(m.now, m.duration()) || p.number > 0:
		case p.desired == m.desired.digest:
			waiting++
		case other == "":
			other = electorate.Name(p.name) + " is configured with " + p.theirs()
		}
	}
	switch {
	case m.desired.Quorum == electorate.None, waiting >= m.desired.Majority():
		m.adopt(electorate.First(m.desired.Electorate))
	case other != "":
		m.problem = other + ", this member with " + m.desired.String() + ": give all members the same"
	default:
		m.problem = fmt.Sprintf("waiting for a majority of the members: heard %d of %d that are configured alike", waiting, len(m.desired.Members))
	}
}

// learn takes the record of a peer if it replaces the one here. A peer has none in force that was not chosen.
func (m *Machine) learn(p *peer, r electorate.Committed) {
	mine := m.state.Committed
	other := mine.Number > 0 && r.Cluster != mine.Cluster && r.Has(p.name)
	switch {
	case r.Number == 0, r.Number > mine.Number+maxJump, r.Validate() != nil:
	case other && m.isSoleVoter() && r.Number > 1, other && m.isOrphaned():
		for _, l := range m.own { // of a cluster that is none any more
			if l.holds() {
				m.lose(l, "this node leaves the cluster that it has begun for "+r.String())
			}
		}
		m.adopt(r)
	case !r.Replaces(mine), mine.Number == 0 && m.open != nil && m.open.Bootstrap && !r.Has(p.name) && !r.Has(m.self.member) && r.OnNode(electorate.Name(m.self.member)):
	case mine.Number == 0 && r.Has(m.self.member) && !m.desired.Has(m.self.member):
		m.problem = fmt.Sprintf("%s says that this member has a vote in %s, and it is not configured with one: what it voted for is forgotten", electorate.Name(p.name), r)
	default:
		m.adopt(r)
	}
}

// adopt puts a record in force, for good: it has been chosen. Leases that this member holds are asked for
// anew, and whoever it voted for keeps that vote until the lease has ended.
func (m *Machine) adopt(r electorate.Committed) {
	longest := max(r.Duration, m.state.Longest)
	if m.inForce() {
		m.settled = m.now.Add(longest + longest/50)
	} else {
		m.refuseVotes(longest)
	}
	m.state, m.digest = State{Committed: r, Longest: longest}, r.Electorate.Digest()
	m.unsaved, m.problem, m.attempt, m.removing = true, "", nil, ""
	m.updateDesired()
	m.updatePeers()
	for _, p := range m.peers {
		p.queue, p.late, p.change = nil, nil, nil
	}
	m.watchQuorum()
	for _, l := range m.own {
		if l.holds() {
			m.renew(l)
		} else {
			m.drop(l, "")
		}
	}
	m.probeAll()
	m.wake(m.now)
}

// refuseVotes makes a started member abstain: an earlier process of it may have voted for leases of that
// duration ("Acceptors restart").
func (m *Machine) refuseVotes(d time.Duration) {
	m.abstain = later(m.abstain, m.started.Add(d+d/50))
	m.settled = later(m.settled, m.abstain)
}

// updatePeers makes peers of the members of the record and of the desired, and of those that do not know yet that
// they are members no more, and keeps the observers. One that comes back is the peer that it was: sequence numbers go on.
func (m *Machine) updatePeers() {
	names := slices.Concat(m.active().Members, m.desired.Members)
	before := m.peers
	m.lingering = false
	for _, p := range before {
		if !p.observer && p.number < m.state.Committed.Number && p.fresh(m.now, m.duration()) && !slices.Contains(names, p.name) {
			names = append(names, p.name)
			m.lingering = true
		}
	}
	m.peers = slices.DeleteFunc(slices.Clone(before), func(p *peer) bool { return !p.observer || slices.Contains(names, p.name) })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == m.self.member {
			continue
		}
		p := m.known[name]
		if p == nil {
			p = &peer{name: name, sequence: m.forgotten}
			m.known[name] = p
		}
		if !slices.Contains(before, p) {
			p.queue, p.late, p.change, p.probe = nil, nil, nil, true
		}
		p.observer = false
		m.insert(p)
	}
}

// apart says why a peer's votes cannot count here, nor ours there; empty if they can.
func (m *Machine) divergence(p *peer) string {
	switch mine := m.state.Committed; {
	case mine.Number > 0 && p.number > 0 && p.cluster != mine.Cluster && mine.Quorum == electorate.Majority:
		return fmt.Sprintf("it belongs to another cluster, which was begun apart, with %s; ours is %s", p.theirs(), mine)
	case mine.Number == 0 && p.number == 0 && p.desired != m.desired.digest && m.open == nil:
		return fmt.Sprintf("its electorate is %s, ours %s", p.theirs(), m.desired)
	}
	return ""
}

func (p *peer) theirs() string {
	if p.described == nil {
		return "another electorate"
	}
	return p.described.String()
}

// waiting lists who keeps a desired from becoming the next record; nil if that is not what it is waiting for.
func (m *Machine) notReady() []string {
	var names []string
	for _, name := range m.desired.Members {
		if p := m.peer(name); p != nil && !m.ready(p) {
			names = append(names, name)
		}
	}
	return names
}

// shares reports whether a peer is heard, wishes for what this member does or is eligible, and votes, as a holder may need it
// at once.
func (m *Machine) ready(p *peer) bool {
	return p.fresh(m.now, m.duration()) && p.desired == m.desired.digest && !p.abstaining && m.divergence(p) == "" || m.eligible(p)
}
