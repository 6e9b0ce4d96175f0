package lease

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/internal/wake"
)

// Candidacy is the desired to hold a lease.
type Candidacy struct {
	Lease    string // name
	Priority int    // the greater is preferred
	Preempt  bool   // replace a holder of lesser priority, once this has stood for one Duration
}

// Machine is one member's part in all elections. Times are readings of the
// caller's monotonic clock. Its methods must not be called concurrently.
// After each call, send and act upon what [Machine.Take] returns.
type Machine struct {
	self    owner
	now     time.Time // of the last call
	next    time.Time // nothing is due before; zero: nothing at all
	started time.Time

	configured desired // what the caller configured
	open       *Open   // nil: the caller says who is to vote
	desired    desired // what the record is to become: of a list, file
	state      State   // with the record in force
	digest     uint64
	unsaved    bool // state has changed
	// abstain is when this member begins to vote, and settled when no vote of it
	// serves a candidate of a record before the one in force any more.
	abstain, settled time.Time
	problem          string   // why there is no record
	attempt          *attempt // to have the next one chosen, nil: none
	attemptAt        time.Time
	removing         string // the voter that an operator removes
	highestAttempt   uint64 // counter seen

	known        map[string]*peer // all that ever were peers, except observers that were forgotten
	peers        []*peer          // members of the record and of the desired but this one, and observers, sorted
	lingering    bool             // some do not know yet that they are members no more
	maxObservers int
	forgotten    uint64    // the greatest sequence number of a message to a forgotten observer
	canWin       bool      // enough members are heard
	canSince     time.Time // since when
	keepaliveAt  time.Time // when peers are told everything again
	keepalives   uint64
	lateAt       time.Time // when what waits is sent, zero: nothing waits

	leases  map[uint64]*lease
	own     []*lease // those with a candidate, in the order they became known
	highest uint64   // counter seen in any ballot
	bids    int      // under way, for leases that this member does not hold

	events  []Event
	ignored uint64
}

// lease is what this member knows of one lease.
type lease struct {
	id uint64
	acceptor
	*candidate // nil: nobody has named the lease here
}

func (m *Machine) wake(t time.Time) {
	m.next = wake.Earlier(m.next, t)
}

// name returns the lease of that name, which is a candidate's from now on. It is
// nil if another name has the same ID.
func (m *Machine) name(name string) *lease {
	l := m.lease(ID(name), len(m.leases)+1)
	if l.candidate == nil {
		l.candidate = &candidate{Candidacy: Candidacy{Lease: name}}
		m.own = append(m.own, l)
	}
	if l.Lease != name {
		return nil
	}
	return l
}

// lease returns the lease of that ID, nil if it is not known and there are limit already.
func (m *Machine) lease(id uint64, limit int) *lease {
	l := m.leases[id]
	if l == nil && len(m.leases) < limit {
		l = &lease{id: id}
		m.leases[id] = l
	}
	return l
}

// duration is that of the leases in force, or of those to come.
func (m *Machine) duration() time.Duration { return m.current().Duration }

// current is the electorate in force, or else the one that this member is configured with.
func (m *Machine) current() *electorate.Electorate {
	if m.inForce() {
		return m.active()
	}
	return &m.desired.Electorate
}

func (m *Machine) peer(name string) *peer {
	if at, found := slices.BinarySearchFunc(m.peers, name, byName); found {
		return m.peers[at]
	}
	return nil
}

// see takes note of a ballot's counter, unless it is absurd.
func (m *Machine) noteCounter(counter uint64) bool {
	if counter > m.highest+maxJump {
		return false
	}
	m.highest = max(m.highest, counter)
	return true
}

// observer reports whether this member neither has a vote nor is to have one.
func (m *Machine) observer() bool { return !m.votes(m.self.member) }

// votes reports whether a member has a vote, or is to have one.
func (m *Machine) votes(name string) bool { return m.active().Has(name) || m.desired.Has(name) }

func (m *Machine) candidate() bool { return slices.ContainsFunc(m.own, m.campaigns) }

// stands reports whether this member is a candidate, or was until lately.
func (m *Machine) campaigns(l *lease) bool {
	return l.campaigning || !l.steppedDown.IsZero() && m.now.Sub(l.steppedDown) < m.duration()
}

// near reports whether a peer is to hear of this member often: both vote, both stand
// for the same lease, or one votes and the other, which has no vote, is a candidate.
func (m *Machine) near(p *peer) bool {
	switch mine, its := m.votes(m.self.member), m.votes(p.name); {
	case mine && its:
		return true
	case mine:
		return len(p.byLease) > 0
	case its:
		return m.candidate()
	}
	return slices.ContainsFunc(m.own, func(l *lease) bool { return m.campaigns(l) && p.byLease[l.id] != nil })
}

func (m *Machine) abstaining() bool { return m.now.Before(m.abstain) }
