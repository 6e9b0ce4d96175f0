package lease_test

import (
	"testing"

	"github.com/herald-vip/herald/lease"
)

// m1 and m4 have removed m3, which m5 takes back to change the duration, too, in one
// step; m2 starts with that in its configuration, and joins m5. Once all hear each
// other they all wait for the same electorate, and no majority of either side does.
func TestWaitOnBothSidesOfAChange(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
	c.run(2 * duration)
	ahead, behind := []string{"m1", "m4"}, []string{"m2", "m5"}
	for _, name := range behind { // they tell that they know of the change, and do not hear of its end
		c.oneWay(true, name, behind...)
		c.oneWay(true, "m1", name)
		c.oneWay(true, "m4", name)
	}
	four := electorate("m1 m2 m4 m5")
	c.reconfigure(four, four.Members...)
	c.awaitActive(2*duration, four, ahead...)

	next := electorate("m1 m2 m4 m5")
	next.Duration = duration * 4 / 5
	for _, name := range behind {
		c.oneWay(true, name, ahead...)
		c.oneWay(false, name, behind...)
	}
	c.reconfigure(c.electorate, "m5")
	c.reconfigure(next, "m1", "m4", "m5")
	c.start("m2", next)
	c.awaitActive(3*duration, c.electorate, behind...)
	clear(c.cut)
	c.stand(vip)
	c.awaitActive(9*duration, next, next.Members...)
	c.awaitHolder(2 * duration)
}

// m1, which holds the lease, is removed and the duration made shorter in one step,
// of which m1 does not hear. m2, whose vote made m1 the holder, is started anew when
// the step is done, and abstains for the shorter duration only.
func TestRemovedAndMadeShorterAtOnce(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	c.nodes["m1"].Stand(c.now, lease.Candidacy{Lease: vip})
	c.awaitHolder(duration)
	c.stand(vip)
	c.oneWay(true, "m1", "m3")
	c.oneWay(true, "m3", "m1")
	c.run(duration)

	next := electorate("m2 m3")
	next.Duration = duration / 4
	c.reconfigure(next, "m2", "m3")
	c.awaitActive(3*duration, next, "m3")
	c.isolate("m1", true)
	c.start("m2", next).Stand(c.now, lease.Candidacy{Lease: vip})
	c.await(2*duration, "a holder of those who stay", func() bool { h := c.holder(vip); return h != "" && h != "m1" })
}

// All wait for a shorter duration, and m3, which nobody hears, makes the step. Then m1,
// which holds the lease by the vote of m2, takes the change back, as does m2, and m2 is
// started with it once more: it abstains for the shorter duration only.
func TestTakenBackAndStartedWithIt(t *testing.T) {
	for _, candidate := range []string{"m2", "m3"} {
		t.Run(candidate, func(t *testing.T) {
			c := newCluster(t, "m1", "m2", "m3")
			c.run(2 * duration)
			c.nodes["m1"].Stand(c.now, lease.Candidacy{Lease: vip})
			c.awaitHolder(duration)
			next := electorate("m1 m2 m3")
			next.Duration = duration / 4
			c.oneWay(true, "m3", "m1", "m2")
			c.reconfigure(next, "m1", "m2", "m3")
			c.awaitActive(3*duration, next, "m3")
			c.reconfigure(c.electorate, "m1", "m2")
			c.oneWay(false, "m3", "m1", "m2")
			c.run(4 * duration)
			c.await(2*duration, "m1 to hold the lease", func() bool { return c.holder(vip) == "m1" })
			c.isolate("m1", true)
			c.start("m2", next)
			c.nodes[candidate].Stand(c.now, lease.Candidacy{Lease: vip})
			c.await(3*duration, "a holder of those who go on", func() bool { return c.holder(vip) == candidate })
		})
	}
}
