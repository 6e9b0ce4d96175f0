package lease

import (
	"time"

	"github.com/herald-vip/herald/election/wire"
)

// acceptor holds the promise and the grant of this member for one lease (PaxosLease, "Basic algorithm", acceptor).
//
// It differs from the paper in one respect: a grant runs until it expires or its owner releases it. No ballot of
// another process replaces it or gets a promise before then, however great. So every acceptor grants a lease to one
// process at a time, and any two majorities share an acceptor. This alone guarantees a single holder. Promises merely
// keep candidates that start at the same time from splitting the votes.
type acceptor struct {
	promised ballot // lesser ballots are refused; if it has no member, equal ones too
	accepted ballot
	expires  time.Time // end of the accepted grant: its expiry or its release
	// successor was named by the last release, at released.
	successor string
	released  time.Time
	touched   time.Time // by the last request
}

// vote answers a request.
type vote struct {
	granted   bool
	promised  uint64        // if refused: the counter to exceed
	remaining time.Duration // if refused: for how long every ballot will be refused
}

func (a *acceptor) prepare(now time.Time, b ballot) vote {
	if v := a.check(now, b); !v.granted {
		return v
	}
	a.promised = b
	return vote{granted: true}
}

func (a *acceptor) propose(now time.Time, b ballot, d time.Duration) vote {
	if v := a.check(now, b); !v.granted {
		return v
	}
	// A renewal never shortens a grant, even if the Duration has become shorter: the holder relies on the earlier
	// grant.
	a.promised, a.accepted, a.expires = b, b, later(a.expires, now.Add(d))
	a.successor, a.released = "", time.Time{}
	return vote{granted: true}
}

func (a *acceptor) check(now time.Time, b ballot) vote {
	a.touched = now
	if now.Before(a.expires) && a.accepted.owner != b.owner {
		return vote{promised: a.promised.counter, remaining: a.expires.Sub(now)}
	}
	if b.counter < a.promised.counter || b.counter == a.promised.counter && b != a.promised {
		return vote{promised: a.promised.counter}
	}
	return vote{granted: true}
}

// release ends a grant. Its owner has stopped using it and uses no ballot up to b again ("Releasing leases"). From now
// on, the acceptor refuses late or repeated proposals of these ballots.
func (a *acceptor) release(now time.Time, b ballot, successor string) {
	a.touched = now
	if b.counter > a.promised.counter || b == a.promised {
		a.promised = ballot{counter: b.counter}
	}
	if a.accepted.owner == b.owner && a.accepted.counter <= b.counter && now.Before(a.expires) {
		a.expires, a.released, a.successor = now, now, successor
	}
}

// noteHolder records that a process holds the lease, by its own word, unless it has released the lease since. It only
// adds to the restrictions of a grant and never replaces a grant.
func (a *acceptor) noteHolder(now time.Time, b ballot, d time.Duration) {
	over := !a.released.IsZero() && a.accepted.owner == b.owner && b.counter <= a.accepted.counter
	if !over && (!now.Before(a.expires) || a.accepted.owner == b.owner) {
		a.accepted, a.expires, a.touched = b, later(a.expires, now.Add(d)), now
		a.successor, a.released = "", time.Time{}
	}
}

func (a *acceptor) holder(now time.Time) (owner, bool) {
	return a.accepted.owner, now.Before(a.expires)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// maxJump limits how far a ballot may exceed all counters seen before, so that no message drives a counter to overflow.
const maxJump = 1 << 40

// ballot is the number of a candidate's attempt to get a lease. No two attempts share a number, not even across a
// restart ("Basic algorithm").
type ballot struct {
	counter uint64
	owner
}

// owner is a process that proposes: one incarnation of a member.
type owner struct {
	member      string
	incarnation uint64
}

// ID returns the short name of a lease on the wire. Among 1,000 leases, the probability that two share an ID is 1 in
// 10¹³.
func ID(name string) uint64 { return wire.Hash(name, 0) }
