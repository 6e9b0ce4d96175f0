package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/internal/wake"
)

// Candidacy describes a campaign for a lease.
type Candidacy struct {
	Lease    string // name
	Priority int    // the greatest wins
	Preempt  bool   // replace a holder of lesser priority after campaigning for one Duration
	// After, if not empty, names a lease that this one follows: the member bids for it only while it holds the other, and
	// loses or releases both together. So candidates that order leases alike never wait for each other in a circle.
	After string
}

// Machine is one member's part in the elections of all leases. Times are readings of the caller's monotonic clock.
// Methods must not be called concurrently. After each call, send and act on the result of [Machine.Take].
type Machine struct {
	self    owner
	now     time.Time // of the last call
	next    time.Time // nothing is due before; zero: never
	started time.Time

	standings  map[string]electorate.Standing // of other nodes, by name
	configured desired                        // by the caller
	open       *Open                          // nil: the caller names the voters
	desired    desired                        // for a listed electorate, the same as configured
	state      State                          // includes the committed electorate
	digest     uint64
	pending    *pending // nil: state is on disk
	// abstain is when this member begins to vote. settled is when all its votes under earlier electorates have expired.
	abstain, settled time.Time
	problem          string    // why there is no committed electorate
	attempt          *attempt  // to commit the next electorate; nil: none
	attemptAt        time.Time // no attempt before; zero: not determined
	removing         string    // the voter that an operator removes
	highestAttempt   uint64    // counter seen

	known        map[string]*peer // all that ever were peers, except observers that were forgotten
	peers        []*peer          // committed and desired members except this one, and observers; sorted by name
	lingering    bool             // some peers do not know of their removal yet
	maxObservers int
	forgotten    uint64    // greatest sequence number of a message to a forgotten observer
	hears        bool      // this member may win, and receives a majority of its cluster
	greater      *peer     // of the cluster that this member's gives way to; nil: none
	canWin       bool      // enough voters are reachable, and no cluster is greater
	canSince     time.Time // start of canWin
	keepaliveAt  time.Time // of the next full keepalive
	keepalives   uint64
	lateAt       time.Time // when delayed items are sent; zero: none

	leases  map[uint64]*lease
	own     []*lease  // leases with a candidate, in order of creation
	highest uint64    // greatest counter in any known ballot
	bids    int       // current ballots for leases that this member does not hold
	pace    int       // limit of bids
	bidsAt  time.Time // no ballot for a free lease before

	events     []Event
	unanswered time.Time // since when the caller has acted on no event; zero: none waits
	ignored    uint64
}

// lease is this member's view of one lease.
type lease struct {
	id uint64
	acceptor
	*candidate // nil: the name of the lease is not known here
}

func (m *Machine) wake(t time.Time) {
	m.next = wake.Earlier(m.next, t)
}

// name returns the lease of that name, with a candidate. It returns nil if another name has the same ID.
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

// mayHold reports whether this member holds the lease that l follows, if any.
func (m *Machine) mayHold(l *lease) bool {
	if l.After == "" {
		return true
	}
	first := m.leases[ID(l.After)]
	return first != nil && first.candidate != nil && first.Lease == l.After && first.holds()
}

// followers calls f for each lease that follows l and has a ballot or is held.
func (m *Machine) followers(l *lease, f func(*lease)) {
	for _, o := range m.own {
		if o.After == l.Lease && o.After != "" && (o.phase != idle || o.holds()) {
			f(o)
		}
	}
}

// lease returns the lease with that ID, creating it if fewer than limit exist; else nil.
func (m *Machine) lease(id uint64, limit int) *lease {
	l := m.leases[id]
	if l == nil && len(m.leases) < limit {
		l = &lease{id: id}
		m.leases[id] = l
	}
	return l
}

// duration returns the Duration of the current electorate.
func (m *Machine) duration() time.Duration { return m.current().Duration }

// current returns the electorate in force, else the desired one.
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

// noteCounter records a ballot's counter. It reports false for a counter beyond maxJump.
func (m *Machine) noteCounter(counter uint64) bool {
	if counter > m.highest+maxJump {
		return false
	}
	m.highest = max(m.highest, counter)
	return true
}

// observer reports whether this member is in neither the committed nor the desired electorate.
func (m *Machine) observer() bool { return !m.votes(m.self.member) }

// votes reports whether a member is in the committed or the desired electorate.
func (m *Machine) votes(name string) bool { return m.active().Has(name) || m.desired.Has(name) }

func (m *Machine) candidate() bool { return slices.ContainsFunc(m.own, m.campaigns) }

// campaigns reports whether this member is a candidate, or was within the last Duration.
func (m *Machine) campaigns(l *lease) bool {
	return l.campaigning || !l.steppedDown.IsZero() && m.now.Sub(l.steppedDown) < m.duration()
}

// near reports whether a peer needs every keepalive: both vote, both campaign for the same lease, or one votes and the
// other is a candidate without a vote.
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

// abstaining reports whether this member votes for no lease: its earlier process may have, or its disk does not tell yet
// that it votes for leases of this Duration.
func (m *Machine) abstaining() bool {
	return m.now.Before(m.abstain) || m.state.Longest < m.active().Duration
}

// abstention returns when to ask an abstaining member again.
func (m *Machine) abstention() time.Duration {
	return cmp.Or(max(m.abstain.Sub(m.now), 0), m.duration()/12)
}

func (m *Machine) elected(votes []string) bool {
	return m.active().Elects(votes, m.participants())
}

// participants lists the required voters for quorum None: reachable members that do not abstain. It returns
// nil for other quorums.
func (m *Machine) participants() []string {
	if m.current().Quorum != electorate.None {
		return nil
	}
	names := []string{m.self.member}
	for _, p := range m.peers {
		if p.incarnation != 0 && m.now.Sub(p.received) < m.duration()*2/3 && !p.abstaining {
			names = append(names, p.name)
		}
	}
	return names
}

// reachableVoters lists the voters that might vote for this member, itself included if it has a vote. A voter with an
// older electorate counts, since it is about to receive this electorate.
func (m *Machine) reachableVoters() []string {
	if !m.inForce() {
		return nil
	}
	var names []string
	if m.voter() {
		names = append(names, m.self.member)
	}
	for _, p := range m.peers {
		if m.active().Has(p.name) && p.fresh(m.now, m.duration()) && p.number <= m.state.Committed.Number && m.divergence(p) == "" {
			names = append(names, p.name)
		}
	}
	return names
}

func (m *Machine) electable() bool {
	switch {
	case !m.inForce(), m.pending != nil && m.pending.Committed.Cluster != m.state.Committed.Cluster:
		return false
	case m.active().Quorum == electorate.None:
		return m.voter()
	}
	return len(m.reachableVoters()) >= m.active().Majority()
}

func (m *Machine) watchQuorum() {
	m.hears, m.greater = m.hearsMajority(), nil
	if at := slices.IndexFunc(m.peers, m.yieldsTo); at >= 0 {
		m.greater = m.peers[at]
		m.standStill(m.yields())
	}
	could := m.electable() && m.greater == nil
	if could && !m.canWin {
		m.canSince = m.now
		if m.candidate() {
			m.probeAll() // the candidacies count from now on
		}
	}
	m.canWin = could
}
