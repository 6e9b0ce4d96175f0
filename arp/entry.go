package arp

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// memberGrace is how long to wait before a member's statement is contradicted. If this process
// stood still, it is of one that took over meanwhile, and the address is about to
// be withdrawn here.
const memberGrace = 100 * time.Millisecond

// rivalry is for how long after its claim was contradicted a member that claims an address again holds
// it, too: one that stood still has found out by then that it does not.
const rivalry = 5 * time.Second

// entry is an address on a link that is announced, watched, or both.
type entry struct {
	addr      netip.Addr
	announced bool
	schedule  schedule
	until     time.Time // nothing is announced from then on; zero for no limit
	answered  time.Time // when someone else's statement was last contradicted
	answerAt  time.Time // when one is to be; zero for never
	watch     *watch    // nil: not watched

	claimed      bool      // a member's claim is to be contradicted
	contradicted time.Time // when one was last, since the address is announced
	rival        mac       // member that holds the address, too
	rivalSeen    time.Time // when it last claimed it; zero for never
}

// announce begins a burst.
func (e *entry) announce(now, until time.Time, refresh time.Duration) {
	e.announced, e.until, e.answerAt, e.schedule = true, until, time.Time{}, startSchedule(now, refresh)
	e.claimed, e.contradicted, e.rivalSeen = false, time.Time{}, time.Time{}
}

// claim takes in that a member claims the address, which is announced here. It returns whether that
// shows, and was not known, that the member holds it.
func (e *entry) claim(now time.Time, by mac) (news bool) {
	e.claimed = true
	if e.contradicted.IsZero() || now.Sub(e.contradicted) > rivalry {
		return false
	}
	news = !e.rivals(now)
	e.rival, e.rivalSeen = by, now
	return news
}

// rivals is whether a member holds the address, too.
func (e *entry) rivals(now time.Time) bool {
	return e.announced && !e.rivalSeen.IsZero() && now.Sub(e.rivalSeen) < quiet
}

// allowed is whether the address may be announced still.
func (e *entry) allowed(now time.Time) bool {
	return e.announced && (e.until.IsZero() || now.Before(e.until))
}

// answer has someone else's statement contradicted after delay, or later if one was within
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

func (e *entry) answering(now time.Time) bool { return wake.Due(now, e.answerAt) }

// done moves on after an announcement.
func (e *entry) done(now time.Time) {
	if e.schedule.due(now) {
		e.schedule = e.schedule.done(now)
	}
	if e.answering(now) {
		e.answered, e.answerAt = now, time.Time{}
		if e.claimed {
			e.claimed, e.contradicted = false, now
		}
	}
}

// next is when something is due; zero for never.
func (e *entry) next() time.Time {
	var next time.Time
	if e.watch != nil {
		next = e.watch.next()
	}
	if e.announced {
		next = wake.Earlier(next, wake.Earlier(e.schedule.next, e.answerAt))
	}
	return next
}
