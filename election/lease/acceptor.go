package lease

import "time"

// acceptor is what this member has promised and granted for one lease ("Basic
// algorithm", acceptor).
//
// It differs from the paper's in one respect: a grant runs until it expires or
// is released, and no ballot of another process, however great, replaces it or
// is promised anything before. So every acceptor grants a lease to one process
// at a time, and any two majorities share an acceptor: that alone is why there
// is one holder. The promises merely keep candidates that start at the same time
// from splitting the votes.
type acceptor struct {
	promised ballot // lesser ones are refused; without a member: equal ones too
	accepted ballot
	expires  time.Time // accepted: then, or when it was released
	// successor was named by the last release, which came at released.
	successor string
	released  time.Time
	touched   time.Time // by any request
}

// vote answers a request.
type vote struct {
	granted   bool
	promised  uint64        // the counter to exceed, when refused
	remaining time.Duration // how long all will be refused, when refused
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
	// A renewal shortens nothing, although the Duration may have become shorter:
	// the holder counts on what it was granted before.
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

// release forgets a grant whose owner uses neither it nor any ballot up to b
// again ("Releasing leases"). A proposal of these that arrives late, or once
// more, is refused from now on.
func (a *acceptor) release(now time.Time, b ballot, successor string) {
	a.touched = now
	if b.counter > a.promised.counter || b == a.promised {
		a.promised = ballot{counter: b.counter}
	}
	if a.accepted.owner == b.owner && a.accepted.counter <= b.counter && now.Before(a.expires) {
		a.expires, a.released, a.successor = now, now, successor
	}
}

// see notes that a process holds the lease, as it says itself, unless it has said
// since that it released it. It only adds to what a grant forbids, and never replaces one.
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
