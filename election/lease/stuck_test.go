package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
)

// TestStuckCallerRenewsOnce checks the time until which a caller that acts on no event renews its lease, and that the
// renewal follows as soon as it acts again.
func TestStuckCallerRenewsOnce(t *testing.T) {
	c := newCluster(t, "m1")
	c.campaign(vip)
	c.awaitHolder(2 * duration)
	n := c.nodes["m1"]
	grants := func() int {
		granted := slices.IndexFunc(n.events, func(e lease.Event) bool { _, yes := e.(lease.Granted); return yes })
		n.events = nil
		return granted + 1
	}
	grants()
	c.await(duration, "a renewal", func() bool { return grants() > 0 })
	n.Unanswered(c.now)
	c.run(duration * 3 / 5)
	if grants() == 0 {
		t.Error("a slow caller does not renew its lease")
	}
	c.run(duration * 3 / 20)
	if grants() > 0 {
		t.Error("a stuck caller renews its lease")
	}
	n.Unanswered(time.Time{})
	n.Tick(c.now)
	c.take(n)
	if grants() == 0 {
		t.Error("the renewal does not follow at once")
	}
}
