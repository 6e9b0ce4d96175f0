package speaker

import (
	"fmt"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// firstHold is the hold-down after the second failure in a row; each further failure doubles it.
	firstHold = time.Second
	// quietHolds times HoldDown without a failure clears the history.
	quietHolds = 16
)

// damping delays the return of an address that flaps. Each withdrawal costs established connections at the routers, so
// the delay grows. After the first failure an address returns at its first healthy verdict. After the second, its
// hold-down lasts 1 s from the withdrawal, then 2 s, 4 s and so on, up to the VIP's HoldDown. After 16 times HoldDown
// without a failure the history is cleared.
//
// damping never delays a withdrawal but bounds their number. With a HoldDown of h, from 1 s to
// 1 h, a period w has at most 2 + log₂(h/1s) + w/h withdrawals, the logarithm rounded up. For one
// minute that is 8 in a burst and 68 in an hour.
//
// Failures during a hold-down do not extend it. If the checks pass at its end the address
// returns, since a master that is healthy half of the time is better than none.
//
// Planned changes do not count. damping is a value: failed returns its successor.
type damping struct {
	failures    int // in a row, without a quiet period between them
	first, last time.Time
}

// failed counts a failure that withdraws the address now.
func (d damping) failed(now time.Time, holdDown time.Duration) damping {
	if d.failures == 0 || now.Sub(d.last) >= quietHolds*holdDown {
		d = damping{first: now}
	}
	d.failures++
	d.last = now
	return d
}

// until returns the end of the hold-down; zero means that the address may return at once.
func (d damping) until(holdDown time.Duration) time.Time {
	if d.failures < 2 || holdDown <= 0 {
		return time.Time{}
	}
	return d.last.Add(wake.Backoff{Min: firstHold, Max: holdDown}.After(d.failures - 1))
}

// reason explains why a healthy address is held down until a time.
func (d damping) reason(until time.Time) string {
	return fmt.Sprintf("healthy again, held down until %s after %d failures in %v",
		until.Format(time.TimeOnly), d.failures, max(d.last.Sub(d.first), time.Second).Round(time.Second))
}
