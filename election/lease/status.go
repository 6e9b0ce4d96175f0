package lease

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Status describes a machine for display and metrics.
type Status struct {
	Self        string
	Incarnation uint64
	Number      uint64                 // of the committed electorate; 0: none
	Active      *electorate.Electorate // the committed electorate; nil: none
	Desired     *electorate.Electorate // the configured electorate if it differs from the one in force; else nil
	Problem     string                 // why this member neither votes nor starts ballots, or has no vote yet; empty: no problem
	Lag         string                 // how the configuration of this member, which has no vote, differs from the voters'; empty: it does not
	Leases      []LeaseStatus
	Members     []Member // sorted by name
	Ignored     uint64   // ignored messages and items
}

// LeaseStatus describes one lease, as far as this member knows. Its JSON is part of the output of `herald status -o json`.
type LeaseStatus struct {
	Lease       string    `json:"vip"`              // name of the lease: of its VIP
	Holder      string    `json:"holder,omitempty"` // empty: none known
	Epoch       uint64    `json:"epoch"`            // of the holder; 0: unknown
	Until       time.Time `json:"-"`                // end of the lease unless renewed, on this member's clock; zero: unknown
	Votes       []string  `json:"votes,omitempty"`  // voters of this member's last renewal; for the holder only
	Needed      int       `json:"votesNeeded"`      // number of votes that grant the lease
	Campaigning bool      `json:"stands"`           // this member is a candidate
	Held        bool      `json:"-"`                // this member holds it; Holder may also name an earlier member on its node
	Why         string    `json:"-"`                // why there is no holder; empty if there is one
	Lost        string    `json:"-"`                // why this member, a candidate and the last holder, lost the lease; else empty
}

// Replaced reports whether a member has timed out and another has its address or its node's name.
func (s Status) Replaced(m Member) bool {
	return m.Problem != "" && slices.ContainsFunc(s.Members, func(o Member) bool {
		moved := electorate.Address(o.FullName) != o.Address // its address may have been another's
		same := o.Name == m.Name || o.Address == m.Address && !moved
		return o.FullName != m.FullName && same && o.Received.After(m.Received)
	})
}

// Reason explains why there is no holder, and why this member no longer is; empty if neither applies.
func (s LeaseStatus) Reason() string {
	switch {
	case s.Lost == "":
		return s.Why
	case s.Why == "":
		return "lost here: " + s.Lost
	}
	return s.Why + "; lost here: " + s.Lost
}

// Member describes a member, this one included. Its JSON is part of the output of `herald status -o json`.
type Member struct {
	Name      string         `json:"name"`
	FullName  string         `json:"-"`                // with its address, as in the electorate
	Address   netip.AddrPort `json:"address,omitzero"` // where it was last, as far as package election knows
	Self      bool           `json:"self,omitempty"`   // this member; an earlier member on its node is not
	Voter     bool           `json:"voter,omitempty"`  // in the electorate in force, else in the desired one
	Received  time.Time      `json:"heard,omitzero"`   // last message; zero: never
	Desired   uint64         `json:"-"`                // digest of its desired electorate
	Problem   string         `json:"reason,omitempty"` // why it does not count: timed out, or a divergent electorate; empty if it counts
	Divergent bool           `json:"-"`                // reachable, with a divergent electorate

	// Package election sets these.
	Alive     bool `json:"alive"`  // received recently; true for this member
	TCPOnly   bool `json:"-"`      // not alive but answers by TCP: something on the path drops UDP
	Campaigns int  `json:"stands"` // number of its candidacies, by its description
}

// Status describes the machine.
func (m *Machine) Status(now time.Time) Status {
	m.advance(now)
	s := Status{
		Self: electorate.Name(m.self.member), Incarnation: m.self.incarnation, Number: m.state.Committed.Number,
		Problem: cmp.Or(m.problem, m.yields()), Lag: m.lag(), Ignored: m.ignored,
	}
	s.Active, s.Desired = m.Electorates()
	switch {
	case s.Problem != "":
	case m.observer() && !m.inForce() && m.open != nil:
		s.Problem = "no packet from a voter yet: check that one runs at election.join"
	case m.observer() && !m.inForce():
		s.Problem = "no packet from a voter yet: of " + strings.Join(electorate.Names(m.desired.Members), ", ")
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

// Electorates returns the electorate in force and the differing desired one, each nil if there is none.
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

// Members describes the members only, as Status does.
func (m *Machine) Members(now time.Time) []Member {
	m.advance(now)
	self := m.member(m.self.member)
	self.Self, self.Received, self.Desired = true, m.now, m.desired.digest
	all := []Member{self}
	for _, p := range m.peers {
		all = append(all, m.peerStatus(p))
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.FullName, b.FullName) })
	return all
}

// Lease describes one lease, as Status does.
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
	if s.Held = l.holds(); s.Held {
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
	reachable := m.reachableVoters()
	switch {
	case !m.inForce() && m.observer():
		return "no packet from a voter yet"
	case !m.inForce():
		return m.problem
	case m.greater != nil:
		return m.yields()
	case m.active().Quorum == electorate.None && !m.voter():
		return "without a quorum, only voters hold leases"
	case m.active().Quorum == electorate.Majority && len(reachable) < m.active().Majority():
		return fmt.Sprintf("no quorum: %d of %d members reachable, %d needed", len(reachable), len(m.active().Members), m.active().Majority())
	case !campaigning:
		return "no member campaigns for it: none is healthy, or all are drained"
	case m.abstaining() && m.voter():
		return fmt.Sprintf("started recently: this node does not vote for %v", m.abstention().Round(time.Millisecond))
	}
	return "being elected"
}

func (m *Machine) member(name string) Member {
	return Member{Name: electorate.Name(name), FullName: name, Address: electorate.Address(name), Voter: m.current().Has(name)}
}

func (m *Machine) peerStatus(p *peer) Member {
	s := m.member(p.name)
	s.Received, s.Desired = p.received, p.desired
	switch {
	case !m.near(p) && m.now.Sub(p.present()) < farKeepalives*m.duration(): // it sends seldom
	case p.incarnation == 0:
		s.Problem = "no packet yet"
	case !p.fresh(m.now, m.duration()):
		s.Problem = fmt.Sprintf("no packet for %v", m.now.Sub(p.received).Round(time.Millisecond))
	default:
		s.Problem = m.divergence(p)
		s.Divergent = s.Problem != ""
	}
	return s
}
