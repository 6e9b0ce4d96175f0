package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

// Options configure a machine.
type Options struct {
	Self        string // this member, in the form of [electorate.Member]
	Incarnation uint64 // differs at every start of this member and should grow; never 0
	// Electorate is the desired electorate. It founds a cluster if State holds no committed electorate and the member
	// receives none from a peer. Otherwise the committed electorate applies, and changes towards this one.
	Electorate electorate.Electorate
	// Open, if not nil, makes the electorate open. Electorate then names only this member and gives the rules for
	// voting.
	Open      *Open
	State     State // stored by the previous process of this member
	Observers int   // maximum number of known observers; 0: none
}

// New starts a member. The member abstains for slightly longer than the longest lease that its previous process
// may have voted for.
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
		known: map[string]*peer{}, maxObservers: o.Observers, leases: map[uint64]*lease{}, keepaliveAt: now, pace: firstBids,
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

// Campaign makes this member a candidate for a lease from now on, or changes its candidacy. It is idempotent. Of two
// names with the same [ID], the later one is ignored.
func (m *Machine) Campaign(now time.Time, c Candidacy) {
	m.advance(now)
	l := m.name(c.Lease)
	if l == nil || l.campaigning && l.Candidacy == c {
		return
	}
	if !l.campaigning {
		l.campaigning, l.since, l.lost, l.appointed = true, m.now, "", ""
	}
	l.Candidacy = c
	m.announce(l)
	m.wake(m.now)
}

// StepDown ends this member's candidacy. If the member holds the lease, StepDown releases it and its followers
// ([Candidacy.After]) at once to the best other candidate: stop using them first. The lease stays in [Status] until
// [Machine.Forget], even if this member was never a candidate.
func (m *Machine) StepDown(now time.Time, name string) {
	m.advance(now)
	l := m.name(name)
	if l == nil || !l.campaigning {
		return
	}
	if l.appointed == "" { // otherwise it was released with the lease that it follows
		l.appointed = m.best(l, func(*peerCandidacy) bool { return true }).member
	}
	l.campaigning, l.steppedDown = false, m.now
	m.release(l, l.appointed)
	m.announce(l)
}

// release drops a lease and its followers, for the same successor.
func (m *Machine) release(l *lease, successor string) {
	l.appointed = successor
	m.drop(l, successor)
	m.followers(l, func(o *lease) { m.release(o, successor) })
}

// Forget steps down and removes the lease from [Status].
func (m *Machine) Forget(now time.Time, name string) {
	l := m.leases[ID(name)]
	if l == nil || l.candidate == nil || l.Lease != name {
		return
	}
	m.StepDown(now, name)
	l.candidate = nil
	m.own = slices.DeleteFunc(m.own, func(o *lease) bool { return o == l })
}

// Unanswered sets since when events wait and the caller has acted on no event; zero: no event waits. Call it
// before [Machine.Tick].
func (m *Machine) Unanswered(since time.Time) {
	if m.stuck() {
		m.wake(m.now) // leases to renew may be overdue
	}
	m.unanswered = since
}

// stuck reports whether the caller has stopped acting on events. Renewals are a third of a Duration apart, so the lease
// of a caller that stops is renewed once more, or twice if the caller was busy before. A call may take nine tenths of a
// Duration without losing the lease: the renewal waits for its end.
func (m *Machine) stuck() bool {
	return !m.unanswered.IsZero() && m.now.Sub(m.unanswered) >= m.duration()*3/5
}

// Resume reports that the clock has stood still, for example because the computer was suspended. It ends the leases and
// ballots of this member, as their grants may be over by the acceptors' clocks. The member need not abstain: its clock
// only makes its own grants, abstention and waits longer, which is safe.
func (m *Machine) Resume(now time.Time) {
	m.advance(now)
	m.standStill("this computer was suspended")
	m.wake(m.now)
}

// Next returns the time at which Tick is due, possibly early; zero means never.
func (m *Machine) Next() time.Time { return m.next }

// AddObservers adds members without a vote that have not been received yet, so that they receive messages of this one.
// Names that are known by messages may be omitted.
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
		if p.observer && (p.joined.IsZero() || p.incarnation == 0) { // earlier messages to it may have been lost
			p.probe, p.told = true, false
			m.wake(m.now)
		}
		p.joined = m.now
	}
}

// Event reports a change of a lease: [Granted], [Lost] or [Transfer].
type Event interface{ event() }

// Granted reports that this member holds the lease until a time on its own clock. A renewal is another Granted with the
// same epoch and a later end.
type Granted struct {
	Lease string
	Epoch uint64 // greater than the previous holder's
	Until time.Time
}

// Lost reports that this member no longer holds the lease. [Machine.StepDown] causes none: the caller knows.
type Lost struct {
	Lease  string
	Reason string // for display, without the lease's name
}

// Transfer asks the holder to hand the lease to a better candidate, by [Machine.StepDown] once it has prepared for
// that.
type Transfer struct {
	Lease  string
	To     string // the better candidate
	Reason string // for display, without the lease's name
}

func (Granted) event()  {}
func (Lost) event()     {}
func (Transfer) event() {}
