package arp

import (
	"net/netip"
	"time"
)

// settle is how long to wait before a member's claim is contradicted. If this process
// stood still, the claim is of one that took over meanwhile, and the address is about to
// be withdrawn here.
const settle = 100 * time.Millisecond

// entry is an address on a link that is announced, watched, or both.
type entry struct {
	addr      netip.Addr
	announced bool
	schedule  schedule
	until     time.Time // nothing is announced from then on; zero for no limit
	answered  time.Time // when someone else's claim was last, or is to be, contradicted
	watch     *watch    // nil: not watched
}

// announce begins a burst.
func (e *entry) announce(now time.Time, refresh time.Duration) {
	e.announced, e.until, e.schedule = true, time.Time{}, startSchedule(now, refresh)
}

// allowed is whether the address may be announced still.
func (e *entry) allowed(now time.Time) bool {
	return e.announced && (e.until.IsZero() || now.Before(e.until))
}

// answer has the address announced after delay, or later if that was done for the
// same reason within defendEvery. It returns false if that is on its way already.
func (e *entry) answer(now time.Time, delay time.Duration) bool {
	if e.answered.After(now) {
		return false
	}
	at := now.Add(delay)
	if earliest := e.answered.Add(defendEvery); at.Before(earliest) {
		at = earliest
	}
	e.answered = at
	if at.Before(e.schedule.next) {
		e.schedule.next = at
	}
	return true
}

// next is when something is due; zero for never.
func (e *entry) next() time.Time {
	var next time.Time
	if e.watch != nil {
		next = e.watch.next()
	}
	if e.announced {
		next = earlier(next, e.schedule.next)
	}
	return next
}

// earlier takes zero for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
