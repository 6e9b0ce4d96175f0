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
	answered  time.Time // when someone else's claim was last contradicted
	answerAt  time.Time // when one is to be; zero for never
	watch     *watch    // nil: not watched
}

// announce begins a burst.
func (e *entry) announce(now time.Time, refresh time.Duration) {
	e.announced, e.until, e.answerAt, e.schedule = true, time.Time{}, time.Time{}, startSchedule(now, refresh)
}

// allowed is whether the address may be announced still.
func (e *entry) allowed(now time.Time) bool {
	return e.announced && (e.until.IsZero() || now.Before(e.until))
}

// answer has someone else's claim contradicted after delay, or later if one was within
// defendEvery. It returns false if that is to happen already.
func (e *entry) answer(now time.Time, delay time.Duration) bool {
	if !e.answerAt.IsZero() {
		return false
	}
	e.answerAt = now.Add(delay)
	if earliest := e.answered.Add(defendEvery); e.answerAt.Before(earliest) {
		e.answerAt = earliest
	}
	return true
}

// due is whether to announce now.
func (e *entry) due(now time.Time) bool {
	return e.announced && (e.schedule.due(now) || e.answering(now))
}

func (e *entry) answering(now time.Time) bool { return !e.answerAt.IsZero() && !now.Before(e.answerAt) }

// done moves on after an announcement.
func (e *entry) done(now time.Time) {
	if e.schedule.due(now) {
		e.schedule = e.schedule.done(now)
	}
	if e.answering(now) {
		e.answered, e.answerAt = now, time.Time{}
	}
}

// next is when something is due; zero for never.
func (e *entry) next() time.Time {
	var next time.Time
	if e.watch != nil {
		next = e.watch.next()
	}
	if e.announced {
		next = earlier(next, earlier(e.schedule.next, e.answerAt))
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
