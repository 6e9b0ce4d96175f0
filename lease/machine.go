package lease

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Options are what a machine needs to know.
type Options struct {
	Self        string // this member's name
	Incarnation uint64 // differs with every start of this member, and should grow; never 0
	// Electorate is who votes. If Self is not among its members, this one has no vote
	// and follows those that have, whatever they use by then.
	Electorate Electorate
	Guests     int // how many members without a vote may be known at a time, 0: none
}

// Candidacy is the wish to hold a lease.
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

	configured *roll // by the caller
	active     *roll // nil until the others agree
	pending    *roll // the one to take when all agree, nil if there is none
	former     *roll // the one in use before the active one, nil if there was none
	// abstain is when this member begins to vote, and settled when no vote of it
	// serves a candidate of an electorate before the active one any more.
	abstain, settled time.Time
	problem          string // why there is no active electorate

	known     map[string]*peer // all that ever were peers, but for guests that were forgotten
	peers     []*peer          // members of any of the electorates but this one, and guests, sorted
	maxGuests int
	forgotten uint64    // the greatest sequence number of a message to a forgotten guest
	canWin    bool      // enough members are heard
	canSince  time.Time // since when
	helloAt   time.Time // when peers are told everything again
	hellos    uint64
	lateAt    time.Time // when what waits is sent, zero: nothing waits

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

// New starts a member. It does not vote for a little more than one Duration:
// it may have voted before it was started.
func New(now time.Time, o Options) (*Machine, error) {
	if o.Incarnation == 0 {
		return nil, errors.New("incarnation 0: it must differ with every start")
	}
	if err := o.Electorate.Validate(); err != nil {
		return nil, err
	}
	if o.Self == "" || len(o.Self) > maxName {
		return nil, fmt.Errorf("this member's name, %q: want 1 to %d bytes", o.Self, maxName)
	}
	m := &Machine{
		self: owner{o.Self, o.Incarnation}, now: now, started: now, configured: newRoll(o.Electorate),
		known: map[string]*peer{}, maxGuests: o.Guests, leases: map[uint64]*lease{}, helloAt: now,
	}
	if !m.guest() {
		m.pending = m.configured
	}
	m.refuseVotesFor(o.Electorate.Duration)
	m.meet()
	if o.Electorate.Quorum == None && !m.guest() {
		m.active, m.pending = m.pending, nil // whoever is alone goes on alone
	}
	m.agree()
	m.wake(now)
	return m, nil
}

// Stand makes this member a candidate for a lease from now on, or changes its
// candidacy. It is idempotent. Two names with the same [ID] cannot both stand:
// the later is ignored.
func (m *Machine) Stand(now time.Time, c Candidacy) {
	m.advance(now)
	l := m.name(c.Lease)
	if l == nil || l.standing && l.Candidacy == c {
		return
	}
	if !l.standing {
		l.standing, l.since, l.lost = true, m.now, ""
	}
	l.Candidacy = c
	m.announce(l)
	m.wake(m.now)
}

// Resign ends this member's candidacy. If it holds the lease, the lease is
// released at once, to the best other candidate: stop using it first. The lease
// remains in [Status], also if this member never stood, until [Machine.Forget].
func (m *Machine) Resign(now time.Time, name string) {
	m.advance(now)
	l := m.name(name)
	if l == nil || !l.standing {
		return
	}
	successor := m.successor(l)
	l.standing, l.resigned, l.heir = false, m.now, successor
	m.drop(l, successor)
	m.announce(l)
}

// Forget resigns and drops the lease from [Status].
func (m *Machine) Forget(now time.Time, name string) {
	l := m.leases[ID(name)]
	if l == nil || l.candidate == nil || l.Lease != name {
		return
	}
	m.Resign(now, name)
	l.candidate = nil
	m.own = slices.DeleteFunc(m.own, func(o *lease) bool { return o == l })
}

// Next is when Tick is due, possibly early; zero: never.
func (m *Machine) Next() time.Time { return m.next }

// advance takes the time of a call. Leases that have ended are lost before
// anything else happens: this process may not have run for a while.
func (m *Machine) advance(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	if m.next.IsZero() || m.now.Before(m.next) {
		return
	}
	for _, l := range m.own {
		if l.holds() && !m.now.Before(l.giveUp) {
			m.lose(l, m.overdue(l))
		}
	}
}

// wake makes Tick due at t at the latest.
func (m *Machine) wake(t time.Time) {
	if m.next.IsZero() || t.Before(m.next) {
		m.next = t
	}
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

// forgetIdle drops leases that nobody has asked for in two Durations, candidacies
// that have not been repeated, and guests that are gone.
func (m *Machine) forgetIdle() {
	for id, l := range m.leases {
		if l.candidate == nil && !m.now.Before(l.expires) && m.now.Sub(l.touched) > 2*m.duration() {
			delete(m.leases, id)
		}
	}
	for _, p := range m.peers {
		for id, s := range p.stands {
			if m.now.Sub(p.last(s)) > farHellos*m.duration() {
				p.drop(id)
			}
		}
	}
	m.forgetGuests(func(p *peer) bool { return m.now.Sub(p.present()) > guestMemory })
}

// duration is that of the electorate in use, or of the one to come if that is
// less: a member that is started when it has come abstains no longer than that.
func (m *Machine) duration() time.Duration {
	if m.active != nil && m.pending != nil {
		return min(m.active.Duration, m.pending.Duration)
	}
	return m.current().Duration
}

// current is the electorate in use, or else the one to come, or else the configured one.
func (m *Machine) current() *roll { return cmp.Or(m.active, m.pending, m.configured) }
