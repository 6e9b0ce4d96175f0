package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the state of a machine, for people and metrics.
type Status struct {
	Self        string
	Incarnation uint64
	Active      *Electorate // nil while there is none
	Pending     *Electorate // waits for all members to agree, or is to be in use first; nil if there is none
	Abstaining  time.Time   // until when this member does not vote, zero if it does
	Problem     string      // why this member neither votes nor bids, or has no vote yet; empty if all is well
	Lag         string      // that this member, which has no vote, was configured with another electorate than the voters use; else empty
	Leases      []LeaseStatus
	Members     []MemberStatus // sorted by name
	Ignored     uint64         // messages and parts of messages that were not taken
}

// LeaseStatus is the state of one lease, as far as this member knows.
type LeaseStatus struct {
	Lease    string
	Holder   string    // empty: nobody that we know of
	Epoch    uint64    // of the holder, 0 if unknown
	Until    time.Time // when the lease ends unless it is renewed, on this member's clock; zero if unknown
	Votes    []string  // who granted this member's last renewal; for the holder only
	Needed   int       // votes that grant the lease
	Standing bool      // this member is a candidate
	Priority int       // of this member's candidacy
	Why      string    // why there is no holder, empty if there is one
	Lost     string    // why this member, which stands and held it last, lost it; else empty
}

// MemberStatus is what is known of a member, this one included.
type MemberStatus struct {
	Name        string
	Voter       bool      // it has a vote in the electorate in use, or in the one to come if there is none
	Heard       time.Time // last, zero: never
	Incarnation uint64    // 0 if never heard
	Active      uint64    // digests of its electorates, 0: none
	Pending     uint64
	Abstaining  bool
	Problem     string // why it does not count: silent, or of another electorate; empty if it does
}

// Status describes the machine.
func (m *Machine) Status(now time.Time) Status {
	m.advance(now)
	s := Status{
		Self: m.self.member, Incarnation: m.self.incarnation, Active: m.active.describe(), Pending: m.awaiting().describe(),
		Problem: m.problem, Lag: m.lag(), Ignored: m.ignored,
	}
	switch {
	case m.guest() && m.active == nil:
		s.Problem = "no voter has been heard yet: of " + strings.Join(m.configured.Members, ", ")
	case m.guest():
	case m.active != nil && !m.active.has(m.self.member):
		s.Problem = fmt.Sprintf("this member is not in the electorate in use, %s", m.active)
	}
	if m.abstaining() && !m.guest() {
		s.Abstaining = m.abstain
	}
	for _, l := range m.own {
		s.Leases = append(s.Leases, m.leaseStatus(l))
	}
	s.Members = m.members()
	return s
}

// Electorates are the one in use and the one to come, nil if there is none.
func (m *Machine) Electorates() (active, pending *Electorate) {
	return m.active.describe(), m.awaiting().describe()
}

// awaiting is the electorate that is to be in use: the configured one if there is none yet.
func (m *Machine) awaiting() *roll {
	if m.active == nil {
		return cmp.Or(m.pending, m.configured)
	}
	return m.pending
}

// Members describes the members alone, as Status does.
func (m *Machine) Members(now time.Time) []MemberStatus {
	m.advance(now)
	return m.members()
}

func (m *Machine) members() []MemberStatus {
	all := []MemberStatus{{
		Name: m.self.member, Voter: m.current().has(m.self.member), Heard: m.now, Incarnation: m.self.incarnation,
		Active: m.active.sum(), Pending: m.pending.sum(), Abstaining: m.abstaining() && !m.guest(),
	}}
	for _, p := range m.peers {
		all = append(all, m.memberStatus(p))
	}
	slices.SortFunc(all, func(a, b MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Lease describes one lease, as Status does all.
func (m *Machine) Lease(now time.Time, name string) LeaseStatus {
	m.advance(now)
	if l := m.leases[ID(name)]; l != nil && l.candidate != nil && l.Lease == name {
		return m.leaseStatus(l)
	}
	return LeaseStatus{Lease: name, Needed: m.current().needed(m.within()), Why: m.why(false)}
}

func (m *Machine) leaseStatus(l *lease) LeaseStatus {
	s := LeaseStatus{
		Lease: l.Lease, Standing: l.standing, Priority: l.Priority, Lost: l.lost, Needed: m.current().needed(m.within()),
	}
	standing := l.standing
	m.rivals(l, func(p *peer, c *stand) {
		standing = true
		if c.epoch > s.Epoch {
			s.Holder, s.Epoch = p.name, c.epoch
		}
	})
	if o, ok := l.holder(m.now); ok && o.member != m.self.member {
		if s.Holder != o.member {
			s.Holder, s.Epoch = o.member, 0
		}
		s.Until = l.expires
	}
	if l.holds() {
		s.Holder, s.Epoch, s.Until, s.Votes = m.self.member, l.epoch, l.until, slices.Clone(l.backers)
		if l.phase == granted {
			s.Votes = slices.Clone(l.votes)
		}
	}
	if s.Holder == "" {
		s.Why = m.why(standing)
	}
	return s
}

// why there is no holder.
func (m *Machine) why(standing bool) string {
	heard := m.audible()
	switch {
	case m.active == nil && m.guest():
		return "no voter has been heard yet"
	case m.active == nil:
		return m.problem
	case m.active.Quorum == None && !m.active.has(m.self.member):
		return "without a quorum only those hold leases that have a vote"
	case m.active.Quorum == Majority && len(heard) < m.active.majority():
		return fmt.Sprintf("no quorum: of %d members %d are heard, and %d needed", len(m.active.Members), len(heard), m.active.majority())
	case !standing:
		return "no member stands for it: none is healthy, or all are drained"
	case m.abstaining() && m.active.has(m.self.member):
		return fmt.Sprintf("started lately: no vote from here for %v", m.abstain.Sub(m.now).Round(time.Millisecond))
	}
	return "being elected"
}

func (m *Machine) memberStatus(p *peer) MemberStatus {
	s := MemberStatus{
		Name: p.name, Voter: m.current().has(p.name), Heard: p.heard, Incarnation: p.incarnation,
		Active: p.active, Pending: p.pending, Abstaining: p.abstaining,
	}
	switch {
	case !m.near(p) && m.now.Sub(p.present()) < farHellos*m.duration(): // it need not speak often
	case p.incarnation == 0:
		s.Problem = "never heard"
	case !p.fresh(m.now, m.duration()):
		s.Problem = fmt.Sprintf("silent for %v", m.now.Sub(p.heard).Round(time.Millisecond))
	case m.active == nil && p.active == 0 && p.pending == m.pending.sum():
	case m.active == nil, p.active == 0,
		!serves(p.active, p.pending, m.active.digest) && !serves(m.active.digest, m.pending.sum(), p.active):
		s.Problem = fmt.Sprintf("its electorate is %s, ours %s", p.theirs(), m.current())
	}
	return s
}

// theirs describes the electorate that a peer uses, or else waits for.
func (p *peer) theirs() string {
	for _, digest := range []uint64{p.active, p.pending} {
		if r := p.roll(digest); r != nil {
			return r.String()
		}
		if digest != 0 {
			break
		}
	}
	return "another one"
}
