package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Options are what a machine needs to know.
type Options struct {
	Self        string // this member, as [electorate.Member] has it
	Incarnation uint64 // differs with every start of this member, and should grow; never 0
	// Electorate is who is to vote. A member whose State has a record goes on with that, and one that hears
	// of a record takes it: this is where a cluster begins, and what it is to become.
	Electorate electorate.Electorate
	// Open, if it is not nil, has members come and go by themselves: Electorate then names this member alone, and says
	// by which rules it is to vote.
	Open      *Open
	State     State // what an earlier process of this member left to remember
	Observers int   // how many may be known at a time, 0: none
}

// New starts a member. It does not vote for a little more than the longest lease
// that it may have voted for before it was started.
func New(now time.Time, o Options) (*Machine, error) {
	if o.Incarnation == 0 {
		return nil, errors.New("incarnation 0: it must differ with every start")
	}
	if err := o.Electorate.Validate(); err != nil {
		return nil, err
	}
	if o.Self == "" || len(o.Self) > electorate.MaxName {
		return nil, fmt.Errorf("this member's name, %q: want 1 to %d bytes", o.Self, electorate.MaxName)
	}
	m := &Machine{
		self: owner{o.Self, o.Incarnation}, now: now, started: now, configured: newDesired(o.Electorate), open: o.Open,
		state: o.State,
		known: map[string]*peer{}, maxObservers: o.Observers, leases: map[uint64]*lease{}, keepaliveAt: now,
	}
	if m.inForce() {
		m.digest = m.active().Digest()
		m.state.Longest = max(o.State.Longest, m.active().Duration)
		m.refuseVotes(m.state.Longest)
	} else {
		m.refuseVotes(o.Electorate.Duration)
	}
	m.updateDesired()
	m.updatePeers()
	m.agree()
	m.wake(now)
	return m, nil
}

// Stand makes this member a candidate for a lease from now on, or changes its
// candidacy. It is idempotent. Two names with the same [ID] cannot both stand:
// the later is ignored.
func (m *Machine) Campaign(now time.Time, c Candidacy) {
	m.advance(now)
	l := m.name(c.Lease)
	if l == nil || l.campaigning && l.Candidacy == c {
		return
	}
	if !l.campaigning {
		l.campaigning, l.since, l.lost = true, m.now, ""
	}
	l.Candidacy = c
	m.announce(l)
	m.wake(m.now)
}

// Resign ends this member's candidacy. If it holds the lease, the lease is
// released at once, to the best other candidate: stop using it first. The lease
// remains in [Status], also if this member never stood, until [Machine.Forget].
func (m *Machine) StepDown(now time.Time, name string) {
	m.advance(now)
	l := m.name(name)
	if l == nil || !l.campaigning {
		return
	}
	successor := m.successor(l)
	l.campaigning, l.steppedDown, l.appointed = false, m.now, successor
	m.drop(l, successor)
	m.announce(l)
}

// Forget resigns and drops the lease from [Status].
func (m *Machine) Forget(now time.Time, name string) {
	l := m.leases[ID(name)]
	if l == nil || l.candidate == nil || l.Lease != name {
		return
	}
	m.StepDown(now, name)
	l.candidate = nil
	m.own = slices.DeleteFunc(m.own, func(o *lease) bool { return o == l })
}

// Next is when Tick is due, possibly early; zero: never.
func (m *Machine) Next() time.Time { return m.next }

// Meet makes observers of members that have not been heard yet and have no vote, so
// that they hear of this one. Those that others are told of in such ways need not
// be there.
func (m *Machine) AddObservers(now time.Time, names ...string) {
	m.advance(now)
	for _, name := range names {
		p := m.peer(name)
		if p == nil {
			p = m.addObserver(name)
		}
		if p == nil {
			continue
		}
		if p.observer && (p.joined.IsZero() || p.incarnation == 0) { // what was said to it before may have got nowhere
			p.probe, p.told = true, false
			m.wake(m.now)
		}
		p.joined = m.now
	}
}
