package arp

import (
	"net/netip"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// memberGrace is the wait before contradicting a member's statement. If this process was stopped, the
// member has taken over meanwhile, and the address is about to be withdrawn here.
const memberGrace = 100 * time.Millisecond

// rivalry is a time after a contradiction: a further claim within it shows that the member holds the address
// too. A member that was stopped has found out by then that it lost the address.
const rivalry = 5 * time.Second

// entry is an address on a link that is announced, watched, or both.
type entry struct {
	addr      netip.Addr
	announced bool
	schedule  schedule
	until     time.Time // end of announcements; zero for no limit
	answered  time.Time // time of the last contradiction of another host's statement
	answerAt  time.Time // time of the next one; zero for never
	watch     *watch    // nil: not watched

	claimed      bool      // the next contradiction answers a member's claim
	contradicted time.Time // time of the last such contradiction in this announcement
	rival        mac       // member that holds the address too
	rivalSeen    time.Time // time of its last claim; zero for never
}

// announce begins a burst.
func (e *entry) announce(now, until time.Time, refresh time.Duration) {
	e.announced, e.until, e.answerAt, e.schedule = true, until, time.Time{}, startSchedule(now, refresh)
	e.claimed, e.contradicted, e.rivalSeen = false, time.Time{}, time.Time{}
}

// claim notes that a member claims the address while it is announced here. It reports whether this is news that the
// member holds the address too.
func (e *entry) claim(now time.Time, by mac) (news bool) {
	e.claimed = true
	if e.contradicted.IsZero() || now.Sub(e.contradicted) > rivalry {
		return false
	}
	news = !e.rivals(now)
	e.rival, e.rivalSeen = by, now
	return news
}

// rivals reports whether a member holds the address too.
func (e *entry) rivals(now time.Time) bool {
	return e.announced && !e.rivalSeen.IsZero() && now.Sub(e.rivalSeen) < quiet
}

// allowed reports whether the address may be announced.
func (e *entry) allowed(now time.Time) bool {
	return e.announced && (e.until.IsZero() || now.Before(e.until))
}

// answer schedules a contradiction after delay, or later to keep defendEvery after the last one. It
// reports false if one is scheduled already.
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

func (e *entry) due(now time.Time) bool {
	return e.announced && (e.schedule.due(now) || e.answering(now))
}

func (e *entry) answering(now time.Time) bool { return wake.Due(now, e.answerAt) }

// done updates the schedule after an announcement.
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

// next returns the time of the next step; zero for never.
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
