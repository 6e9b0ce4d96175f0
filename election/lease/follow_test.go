package lease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

const (
	addr4 = "10.0.0.1"
	addr6 = "fd00::1"
)

// chain makes a member a candidate for leases, each behind the one before.
func (c *cluster) chain(name string, leases ...string) {
	for i, l := range leases {
		follower := lease.Candidacy{Lease: l}
		if i > 0 {
			follower.After = leases[i-1]
		}
		c.nodes[name].Campaign(c.now, follower)
	}
}

// holdsAll reports whether a member holds all of the leases.
func (c *cluster) holdsAll(name string, leases ...string) bool {
	n := c.nodes[name]
	return n != nil && !slices.ContainsFunc(leases, func(l string) bool { return !c.now.Before(n.until[l]) })
}

// TestFollowersCostOneBallotEach compares the takeover of one lease with that of a VIP with one and two addresses.
func TestFollowersCostOneBallotEach(t *testing.T) {
	var first time.Duration
	for _, leases := range [][]string{{vip}, {vip, addr4}, {vip, addr4, addr6}} {
		for _, how := range []string{"killed", "steps down"} {
			c := newCluster(t, "m1", "m2", "m3")
			for _, name := range c.names {
				c.chain(name, leases...)
			}
			anyone := func() bool {
				return slices.ContainsFunc(c.names, func(name string) bool { return c.holdsAll(name, leases...) })
			}
			c.await(2*duration, "a holder", anyone)
			c.run(5 * duration)
			holder := c.holder(vip)
			if !c.holdsAll(holder, leases...) {
				t.Fatalf("%s does not hold all of %v", holder, leases)
			}
			began := c.now
			if how == "killed" {
				began = c.nodes[holder].until[vip]
				c.kill(holder)
			} else {
				for i := len(leases) - 1; i >= 0; i-- {
					delete(c.nodes[holder].until, leases[i])
				}
				for _, l := range leases {
					c.nodes[holder].StepDown(c.now, l)
				}
				c.take(c.nodes[holder])
			}
			c.await(2*duration, "a successor", anyone)
			took := c.now.Sub(began)
			t.Logf("%d leases, holder %s: %v, %.3f Durations", len(leases), how, took, took.Seconds()/duration.Seconds())
			switch most := time.Duration(len(leases)) * 6 * step; {
			case how == "steps down" && took > most+2*step:
				t.Errorf("%d leases: successor after %v, want %v", len(leases), took, most)
			case how == "killed" && len(leases) == 1:
				first = took
			case how == "killed" && took > first+most:
				t.Errorf("%d leases: took over after %v, one after %v", len(leases), took, first)
			}
		}
	}
}

// TestFollowersEndWithTheFirst checks that followers end with the first lease, in the same call, and at no other time.
func TestFollowersEndWithTheFirst(t *testing.T) {
	held := func() (*cluster, string) {
		c := newCluster(t, "m1", "m2", "m3")
		for _, name := range c.names {
			c.chain(name, vip, addr4, addr6)
		}
		c.await(2*duration, "a holder", func() bool { return c.holder(addr6) != "" })
		c.run(2 * duration)
		return c, c.holder(addr6)
	}
	t.Run("lost", func(t *testing.T) {
		c, holder := held()
		c.isolate(holder, true)
		c.await(duration, "lost", func() bool { return c.holder(vip) != holder })
		if c.holder(addr4) == holder || c.holder(addr6) == holder {
			t.Error("a follower outlives the lease that it follows")
		}
		for _, l := range []string{vip, addr4, addr6} {
			if why := c.nodes[holder].Lease(c.now, l).Lost; !strings.Contains(why, "too few members answered") {
				t.Errorf("%s lost for %q", l, why)
			}
		}
	})
	t.Run("lost before its followers end", func(t *testing.T) {
		c := newCluster(t, "m1", "m2", "m3")
		c.campaign(vip)
		holder := c.awaitHolder(2 * duration)
		n := c.nodes[holder]
		until := n.until[vip]
		c.await(duration, "renewed", func() bool { return n.until[vip] != until })
		until = n.until[vip]
		c.run(duration / 5)
		c.chain(holder, vip, addr4)
		c.await(duration, "the follower", func() bool { return c.holder(addr4) == holder })
		c.isolate(holder, true)
		if n.until[vip] != until {
			t.Fatal("the first was renewed meanwhile")
		}
		c.await(duration, "lost", func() bool { return c.holder(vip) != holder })
		if c.holder(addr4) == holder {
			t.Error("the follower outlives the lease that it follows")
		}
	})
	t.Run("stepped down", func(t *testing.T) {
		c, holder := held()
		n := c.nodes[holder]
		clear(n.until)
		n.StepDown(c.now, vip)
		for _, l := range []string{addr4, addr6} {
			if s := n.Lease(c.now, l); s.Holder != "" {
				t.Errorf("%s is still held: %+v", l, s)
			}
			n.StepDown(c.now, l)
		}
		out, _ := n.Take()
		to := map[string]bool{}
		released := 0
		for _, o := range out {
			for _, it := range o.Items {
				if it.To != "" {
					to[it.To], released = true, released+1
				}
			}
		}
		if len(to) != 1 || released < 3 {
			t.Errorf("%d releases name %v, want one successor for all", released, to)
		}
	})
	t.Run("stepped down in turn", func(t *testing.T) {
		c, holder := held()
		clear(c.nodes[holder].until)
		for _, l := range []string{vip, addr4, addr6} {
			c.nodes[holder].StepDown(c.now, l)
		}
		c.take(c.nodes[holder])
		c.await(duration, "a successor", func() bool { return c.holder(addr6) != "" })
		c.run(5 * duration)
		if got := c.holder(addr6); got == holder || got != c.holder(vip) {
			t.Errorf("%s holds %s and %s holds %s", got, addr6, c.holder(vip), vip)
		}
	})
	t.Run("follower", func(t *testing.T) {
		c, holder := held()
		c.stepDown(holder, addr6)
		c.run(duration)
		if c.holder(vip) != holder || c.holder(addr4) != holder {
			t.Error("a follower's end ended the lease that it follows")
		}
	})
}

// TestFollowerNeedsTheFirst: a member without the first lease leaves the follower alone.
func TestFollowerNeedsTheFirst(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.await(2*duration, "m3", func() bool { return c.holder(vip) == "m3" })
	c.chain("m1", vip, addr4)
	c.chain("m2", "renamed", addr4)
	c.await(duration, "m2", func() bool { return c.holder(addr4) != "" })
	c.stepDown("m2", addr4)
	c.run(5 * duration)
	if got := c.holder(addr4); got != "" {
		t.Errorf("%s holds a follower without the lease that it follows", got)
	}
}

// TestFollowerWaits: a member that holds the first lease takes the follower as soon as another member gives it up, and
// no member asks it to hand over a follower.
func TestFollowerWaits(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: addr4})
	c.await(2*duration, "m3", func() bool { return c.holder(addr4) == "m3" })
	c.chain("m1", vip, addr4)
	c.chain("m2", vip, addr4)
	c.await(2*duration, "the first", func() bool { return c.holder(vip) != "" })
	first := c.holder(vip)
	c.run(10 * duration)
	if c.holder(vip) != first || c.holder(addr4) != "m3" {
		t.Fatalf("%s and %s hold, want %s and m3", c.holder(vip), c.holder(addr4), first)
	}
	c.stepDown("m3", addr4)
	if took := c.await(duration, "the follower", func() bool { return c.holder(addr4) == first }); took > 8*step {
		t.Errorf("the follower took %v", took)
	}
	c.nodes["m3"].Campaign(c.now, lease.Candidacy{Lease: addr4, Priority: 9, Preempt: true})
	c.run(5 * duration)
	for _, e := range c.nodes[first].events {
		if transfer, ok := e.(lease.Transfer); ok {
			t.Errorf("asked for a transfer: %+v", transfer)
		}
	}
	if c.holder(addr4) != first {
		t.Errorf("%s holds the follower, want %s", c.holder(addr4), first)
	}
}

// TestFollowersWithoutQuorum: after a partition, the member that loses the first lease loses its followers.
func TestFollowersWithoutQuorum(t *testing.T) {
	c := newCluster(t, "m1", "m2")
	c.electorate.Quorum = electorate.None
	for _, name := range []string{"m1", "m2"} {
		c.start(name, c.electorate)
		c.chain(name, vip, addr4)
	}
	both := func() bool { return c.holdsAll("m1", vip, addr4) && c.holdsAll("m2", vip, addr4) }
	c.isolate("m2", true)
	c.await(4*duration, "two holders", both)
	c.isolate("m2", false)
	c.await(duration, "one holder", func() bool { return len(c.holders(vip)) == 1 && len(c.holders(addr4)) == 1 })
	c.run(3 * duration)
	if h := c.holder(vip); h == "" || h != c.holder(addr4) {
		t.Errorf("%s holds the VIP, %s its address", h, c.holder(addr4))
	}
}

// TestOneAnswersForAnAddress: members restart with files that name a VIP differently, with a file of the release that
// knew the VIP's name only, and with the address in a pool. Faults happen meanwhile. No two may ever answer for the
// address, and there is a holder at the end.
func TestOneAnswersForAnAddress(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCluster(t, "m1", "m2", "m3")
		c.fail = rt.Fatalf
		claims := [][]string{{vip, addr4}, {"renamed", addr4}, {"renamed", addr4, addr6}, {addr4}, {vip}}
		mine := map[string][]string{}
		name := func() string { return c.names[rapid.IntRange(0, 2).Draw(rt, "node")] }
		run := func(d time.Duration) {
			for end := c.now.Add(d); c.now.Before(end); {
				c.step()
				var answer []string
				for _, n := range c.names {
					if c.holdsAll(n, mine[n]...) && len(mine[n]) > 0 {
						answer = append(answer, n)
					}
				}
				if len(answer) > 1 {
					rt.Fatalf("%v answer for the address\n%s", answer, c.describe())
				}
			}
		}
		wait := func() { run(time.Duration(rapid.IntRange(1, 1500).Draw(rt, "wait")) * step) }
		old := rapid.Bool().Draw(rt, "old names") // then no other name is in any file
		draw := func() []string {
			if old {
				return claims[[]int{0, 4}[rapid.IntRange(0, 1).Draw(rt, "claim")]]
			}
			return claims[rapid.IntRange(0, 3).Draw(rt, "claim")]
		}
		for _, n := range c.names {
			mine[n] = draw()
			c.chain(n, mine[n]...)
		}
		wait()
		actions := c.faults(name, wait)
		actions["restart"] = func(rt *rapid.T) {
			n := name()
			c.start(n, c.electorate)
			mine[n] = draw()
			c.chain(n, mine[n]...)
			wait()
		}
		actions["step down"] = func(rt *rapid.T) {
			n := c.nodes[name()]
			clear(n.until)
			for _, l := range mine[n.name] {
				n.StepDown(c.now, l)
			}
			c.take(n)
			wait()
			c.chain(n.name, mine[n.name]...)
			wait()
		}
		rt.Repeat(actions)
	})
}
