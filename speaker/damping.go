package speaker

import (
	"fmt"
	"time"
)

const (
	// firstHold is how long the second failure in a row holds an address down; each further one doubles it.
	firstHold = time.Second
	// quietHolds is how many times its longest hold-down an address has to go
	// without a failure for the earlier ones to be forgotten.
	quietHolds = 16
)

// damping is what an address's past failures mean for its return. Routers pay
// for each withdrawal with established connections, so an address that comes
// and goes has to stay away longer and longer: after its first failure it
// returns as soon as it is healthy, after the second it is held down for 1 s
// from its withdrawal, then for 2 s, 4 s and so on up to the VIP's HoldDown.
// When it has not failed for 16 times HoldDown, its past is forgotten.
//
// A withdrawal is never delayed. Their number is bounded instead, however the
// checks flap: with a HoldDown of h, between a second and an hour, a time w
// sees at most 2 + log₂(h/1s) + w/h of them, the logarithm rounded up. With
// one minute that is 8 in a burst and 68 in an hour.
//
// While it is held down an address's checks may flap on without making that
// any longer: if they pass at its end it returns, since a master that is
// healthy half of the time is better than none.
//
// Planned changes do not count. damping is a value: failed returns its successor.
type damping struct {
	failures    int // in a row, with no quiet time among them
	first, last time.Time
}

// failed counts a failure that takes the address out of use now.
func (d damping) failed(now time.Time, holdDown time.Duration) damping {
	if d.failures == 0 || now.Sub(d.last) >= quietHolds*holdDown {
		d = damping{first: now}
	}
	d.failures++
	d.last = now
	return d
}

// until is when the address may return; zero is at once.
func (d damping) until(holdDown time.Duration) time.Time {
	if d.failures < 2 || holdDown <= 0 {
		return time.Time{}
	}
	const enough = 24 // doublings, to exceed every HoldDown
	return d.last.Add(min(firstHold<<min(d.failures-2, enough), holdDown))
}

// reason says why a healthy address is held down until a time.
func (d damping) reason(until time.Time) string {
	return fmt.Sprintf("healthy again, held down until %s after %d failures in %v",
		until.Format(time.TimeOnly), d.failures, max(d.last.Sub(d.first), time.Second).Round(time.Second))
}
