package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
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

// TestResume stops the clock of a holder and of a member that bids. Neither has the lease afterwards, even with
// earlier answers.
func TestResume(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.nodes[c.awaitHolder(2*duration)]
	holder.Resume(c.now)
	c.take(holder)
	if l, ok := holder.events[len(holder.events)-1].(lease.Lost); !ok || l.Lease != vip || l.Reason != "this computer was suspended" {
		t.Errorf("the holder was told %+v", holder.events)
	}

	var bidder *node
	c.await(3*duration, "a bid", func() bool {
		for _, p := range c.flying {
			if m, err := message.Parse(p.bytes); err == nil && slices.ContainsFunc(m.Items, func(i message.Item) bool { return i.Kind == message.Accept }) {
				bidder = c.nodes[p.dst]
			}
		}
		return bidder != nil
	})
	bidder.Resume(c.now)
	bidder.events = nil
	c.run(3 * step)
	if len(bidder.events) > 0 {
		t.Errorf("the bidder was told %+v", bidder.events)
	}
	c.awaitHolder(3 * duration)
}
