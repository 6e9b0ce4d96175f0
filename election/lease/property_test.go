package lease_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/election/lease"
)

// TestOneHolder causes random faults in any order: no lease has two holders at any time, and there is a holder soon
// after the last fault.
func TestOneHolder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := []string{"m1", "m2", "m3", "m4", "m5"}[:rapid.SampledFrom([]int{2, 3, 3, 4, 5}).Draw(rt, "members")]
		c := newCluster(t, names...)
		c.fail = func(format string, args ...any) { rt.Fatalf(format, args...) }
		seed := rapid.Uint64().Draw(rt, "seed")
		random := func(n int) int { // SplitMix64
			seed += 0x9e3779b97f4a7c15
			x := seed
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			return int((x^x>>31)>>1) % n
		}
		c.lag = func(string, string) []int {
			switch k := random(100); {
			case k < 5:
				return nil
			case k < 10:
				return []int{1 + random(5), 1 + random(2000)}
			case k < 15:
				return []int{1 + random(300)}
			}
			return []int{1 + random(4)}
		}
		c.campaign(vip)
		name := func() string { return rapid.SampledFrom(names).Draw(rt, "member") }
		wait := func() {
			c.run(time.Duration(rapid.SampledFrom([]int{1, 5, 50, 150, 250, 600, 900}).Draw(rt, "ms")) * time.Millisecond)
		}
		actions := c.faults(name, wait)
		maps.Copy(actions, map[string]func(*rapid.T){
			"wait": func(rt *rapid.T) { wait() },
			"restart": func(rt *rapid.T) {
				c.start(name(), c.electorate).Campaign(c.now, lease.Candidacy{Lease: vip})
				wait()
			},
			"resign": func(rt *rapid.T) {
				n := c.nodes[name()]
				if !n.paused {
					c.stepDown(n.name, vip)
				}
				wait()
			},
			"stand": func(rt *rapid.T) {
				n := c.nodes[name()]
				if !n.paused {
					n.Campaign(c.now, lease.Candidacy{Lease: vip, Priority: random(3), Preempt: random(2) == 0})
					n.yield = true
				}
				wait()
			},
		})
		rt.Repeat(actions)
		clear(c.cut)
		c.lag = nil
		for _, n := range c.nodes {
			n.paused = false
		}
		c.run(step)
		c.campaign(vip)
		c.awaitHolder(3 * duration)
		c.run(3 * duration)
		if c.holder(vip) == "" {
			rt.Fatalf("the holder did not stay\n%s", c.describe())
		}
		if !slices.Contains(names, c.holder(vip)) {
			rt.Fatalf("an unknown member holds the lease")
		}
	})
}
