package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Status is the state of a machine, for people and metrics.
type Status struct {
	Self        string
	Incarnation uint64
	Number      uint64                 // of the record, 0: none is in force
	Active      *electorate.Electorate // that of the record, nil while there is none
	Desired     *electorate.Electorate // what this member is configured with, if it is to become the next or the first; else nil
	Problem     string                 // why this member neither votes nor bids, or has no vote yet; empty if all is well
	Lag         string                 // that this member, which has no vote, was configured with another electorate than the voters use; else empty
	Leases      []LeaseStatus
	Members     []MemberStatus // sorted by name
	Ignored     uint64         // messages and parts of messages that were not taken
}

// LeaseStatus is the state of one lease, as far as this member knows.
type LeaseStatus struct {
	Lease       string
	Holder      string    // empty: nobody that we know of
	Epoch       uint64    // of the holder, 0 if unknown
	Until       time.Time // when the lease ends unless it is renewed, on this member's clock; zero if unknown
	Votes       []string  // who granted this member's last renewal; for the holder only
	Needed      int       // votes that grant the lease
	Campaigning bool      // this member is a candidate
	Why         string    // why there is no holder, empty if there is one
	Lost        string    // why this member, which stands and held it last, lost it; else empty
}

// Replaced reports whether a member is silent and another one is at its address, or of its node's name.
func (s Status) Replaced(m MemberStatus) bool {
	return m.Problem != "" && slices.ContainsFunc(s.Members, func(o MemberStatus) bool {
		same := o.Name == m.Name || electorate.Address(o.Member) == electorate.Address(m.Member)
		return o.Member != m.Member && same && o.Received.After(m.Received)
	})
}

// Reason says why nobody holds the lease, and why this member does not any more; empty if there is nothing to say.
func (s LeaseStatus) Reason() string {
	switch {
	case s.Lost == "":
		return s.Why
	case s.Why == "":
		return "lost here: " + s.Lost
	}
	return s.Why + "; lost here: " + s.Lost
}

// MemberStatus is what is known of a member, this one included.
type MemberStatus struct {
	Name        string
	Member      string    // with its address, as the electorate has it
	Voter       bool      // it has a vote in the electorate in force, or in the desired while there is none
	Received    time.Time // last, zero: never
	Incarnation uint64    // 0 if never heard
	Desired     uint64    // digest of the electorate that it is configured with
	Problem     string    // why it does not count: silent, or of another electorate; empty if it does
	Divergent   bool      // it is heard, and of another electorate
}

// Status describes the machine.
func (m *Machine) Status(now time.Time) Status {
	m.advance(now)
	s := Status{
		Self: electorate.Name(m.self.member), Incarnation: m.self.incarnation, Number: m.state.Committed.Number,
		Problem: m.problem, Lag: m.lag(), Ignored: m.ignored,
	}
	s.Active, s.Desired = m.Electorates()
	switch {
	case s.Problem != "":
	case m.observer() && !m.inForce() && m.open != nil:
		s.Problem = "no voter has been heard yet: see that one is up at election.join"
	case m.observer() && !m.inForce():
		s.Problem = "no voter has been heard yet: of " + strings.Join(electorate.Names(m.desired.Members), ", ")
	case m.observer():
	case m.inForce() && !m.voter():
		s.Problem = fmt.Sprintf("this member is not in the electorate in force, %s", m.active())
	}
	for _, l := range m.own {
		s.Leases = append(s.Leases, m.leaseStatus(l))
	}
	s.Members = m.Members(now)
	return s
}

// Electorates are the one in force and the desired for another, nil if there is none.
func (m *Machine) Electorates() (active, desired *electorate.Electorate) {
	clone := func(e electorate.Electorate) *electorate.Electorate {
		e.Members = slices.Clone(e.Members)
		return &e
	}
	if m.inForce() {
		active = clone(*m.active())
	}
	if m.desired.digest != m.digest && !(m.inForce() && m.observer()) {
		desired = clone(m.desired.Electorate)
	}
	return active, desired
}

// Members describes the members alone, as Status does.
func (m *Machine) Members(now time.Time) []MemberStatus {
	m.advance(now)
	all := []MemberStatus{{
		Name: electorate.Name(m.self.member), Member: m.self.member, Voter: m.current().Has(m.self.member), Received: m.now, Incarnation: m.self.incarnation,
		Desired: m.desired.digest,
	}}
	for _, p := range m.peers {
		all = append(all, m.memberStatus(p))
	}
	slices.SortFunc(all, func(a, b MemberStatus) int { return strings.Compare(a.Member, b.Member) })
	return all
}

// Lease describes one lease, as Status does all.
func (m *Machine) Lease(now time.Time, name string) LeaseStatus {
	m.advance(now)
	if l := m.leases[ID(name)]; l != nil && l.candidate != nil && l.Lease == name {
		return m.leaseStatus(l)
	}
	return LeaseStatus{Lease: name, Needed: m.current().Needed(m.participants()), Why: m.why(false)}
}

func (m *Machine) leaseStatus(l *lease) LeaseStatus {
	s := LeaseStatus{
		Lease: l.Lease, Campaigning: l.campaigning, Lost: l.lost, Needed: m.current().Needed(m.participants()),
	}
	campaigning := l.campaigning
	m.rivals(l, func(p *peer, c *peerCandidacy) {
		campaigning = true
		if c.epoch > s.Epoch {
			s.Holder, s.Epoch = electorate.Name(p.name), c.epoch
		}
	})
	if o, ok := l.holder(m.now); ok && o.member != m.self.member {
		if name := electorate.Name(o.member); s.Holder != name {
			s.Holder, s.Epoch = name, 0
		}
		s.Until = l.expires
	}
	if l.holds() {
		s.Holder, s.Epoch, s.Until, s.Votes = electorate.Name(m.self.member), l.epoch, l.until, electorate.Names(l.backers)
		if l.phase == granted {
			s.Votes = electorate.Names(l.votes)
		}
	}
	if s.Holder == "" {
		s.Why = m.why(campaigning)
	}
	return s
}

func (m *Machine) why(campaigning bool) string {
	heard := m.reachableVoters()
	switch {
	case !m.inForce() && m.observer():
		return "no voter has been heard yet"
	case !m.inForce():
		return m.problem
	case m.active().Quorum == electorate.None && !m.voter():
		return "without a quorum only those hold leases that have a vote"
	case m.active().Quorum == electorate.Majority && len(heard) < m.active().Majority():
		return fmt.Sprintf("no quorum: of %d members %d are heard, and %d needed", len(m.active().Members), len(heard), m.active().Majority())
	case !campaigning:
		return "no member stands for it: none is healthy, or all are drained"
	case m.abstaining() && m.voter():
		return fmt.Sprintf("started lately: no vote from here for %v", m.abstain.Sub(m.now).Round(time.Millisecond))
	}
	return "being elected"
}

func (m *Machine) memberStatus(p *peer) MemberStatus {
	s := MemberStatus{
		Name: electorate.Name(p.name), Member: p.name, Voter: m.current().Has(p.name), Received: p.received, Incarnation: p.incarnation,
		Desired: p.desired,
	}
	switch {
	case !m.near(p) && m.now.Sub(p.present()) < farKeepalives*m.duration(): // it need not speak often
	case p.incarnation == 0:
		s.Problem = "never heard"
	case !p.fresh(m.now, m.duration()):
		s.Problem = fmt.Sprintf("silent for %v", m.now.Sub(p.received).Round(time.Millisecond))
	default:
		s.Problem = m.divergence(p)
		s.Divergent = s.Problem != ""
	}
	return s
}
