// Package lease elects the holders of leases among a few members by PaxosLease (Trencséni, Gazsó and Reinhardt,
// "PaxosLease: Diskless Paxos for Leases", 2012). At most one member holds a lease at a time. This needs local timers
// only, no synchronised clocks; the disk stores only the electorate. The package is pure: it has no clock, goroutine,
// network, log or randomness. The caller passes time and messages in and takes messages and events out.
//
// Members of the electorate vote. Observers are members without a vote that only campaign for leases: in the paper's
// terms, proposers that are not acceptors.
//
// # Why there is one holder
//
// These rules hold with quorum [Majority], however clocks are slewed. Linux slews a clock by at most a tenth
// (adjtimex(2)).
//
//  1. An acceptor grants a lease to one process at a time, for one Duration from the arrival of the proposal. Only
//     expiry or that process ends a grant.
//  2. A holder counts a grant from before it sent the proposal, and for a fifth less than the Duration. An answer
//     names its ballot and round and counts for no other, so delayed or repeated answers extend nothing.
//  3. Two majorities of an electorate share an acceptor; so do majorities of two electorates that differ by one
//     member. Votes count only between processes with the same committed electorate, and a grant outlasts the
//     electorate that it was made under. With 1 and 2, one process holds the lease, whether it votes or not: only
//     votes of the electorate count.
//  4. A restarted process abstains for 2 % more than the longest Duration that its predecessor may have voted for.
//     The disk stores that Duration. Afterwards, all forgotten grants have expired.
//  5. A process that releases a lease has stopped using it, and never again counts an answer for that ballot or a
//     lesser one. From then on, acceptors refuse these ballots.
//  6. A late caller breaks nothing: a lease that is over at the time of a call is lost before the call does anything
//     else.
//  7. The committed electorate has a number, and every member stores it on disk. A majority of the voters of
//     electorate n chooses electorate n+1, once (Paxos). The two differ by at most one member, so 3 holds for them. A
//     member that learns of a greater number adopts that electorate for good.
//  8. A voter of electorate n accepts nothing for n+1 before all its grants under electorates before n have ended.
//     Every majority of n-1 shares a voter with the majority of n that chooses n+1. So when n+1 is in force, no lease
//     of n-1 lasts, and none can be won or renewed. With 3, there is one holder at any time.
//
// The configuration files state the desired electorate. Rules 7 and 8 do not depend on them: the files may differ, be
// old and change at any time. Files can do harm in one way. Members without a committed electorate
// begin a cluster of their own if they are a majority of their list and receive no electorate within a Duration.
//
// In an open electorate ([Open]) a member has an identity and loses it with its disk. It returns as a different member,
// so forgotten votes do not count. Restoring a snapshot of the disk does break this rule. Rules 7 and 8 hold for any
// desired electorate.
//
// Unlike in the paper, a greater ballot does not displace a grant, so 1 and 3 need no promises. Ballots remain for two
// purposes: of candidates that start at the same time one wins, and released proposals stay released.
//
// # Duties of the caller
//
//   - Take a message first, then read the clock: a grant must not seem older than the proposal. A time from before a
//     message was sent breaks 1.
//   - Use a lease no longer than the last [Granted] says, by a monotonic clock that does not stop while the machine
//     runs. Act on [Lost] before sending anything.
//   - Stop using a lease before [Machine.StepDown].
//   - Store the state of [Machine.Unsaved] on disk before sending or acting on the result of [Machine.Take], and start
//     the next process with it. A member that lost its disk may have forgotten a vote: give it another address or
//     name. Nothing else is stored: a slow disk delays a start and a change of members, but no renewal.
//   - Authenticate messages: anyone who can write them is trusted.
//
// # How soon there is a holder
//
// Members that can reach each other exchange keepalives every third of a Duration. A majority of them with a candidate
// has a holder within three Durations after any fault: one until old grants and abstentions are over, the others for
// lost messages. A released lease takes two round trips. An observer that is not a candidate sends a fifteenth as
// often.
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

// Campaign makes this member a candidate for a lease from now on, or changes its candidacy. It is idempotent. Of two
// names with the same [ID], the later one is ignored.
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

// StepDown ends this member's candidacy. If the member holds the lease, StepDown releases it at once to the best other
// candidate: stop using the lease first. The lease stays in [Status] until [Machine.Forget], even if this member was
// never a candidate.
func (m *Machine) StepDown(now time.Time, name string) {
	m.advance(now)
	l := m.name(name)
	if l == nil || !l.campaigning {
		return
	}
	successor := m.best(l, func(*peerCandidacy) bool { return true }).member
	l.campaigning, l.steppedDown, l.appointed = false, m.now, successor
	m.drop(l, successor)
	m.announce(l)
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
