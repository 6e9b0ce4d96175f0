package lease_test

import (
	"fmt"
	"testing"
	"time"
)

// TestPace runs members that need long for each packet and drop packets after a long wait. They take the leases
// slowly and keep them.
func TestPace(t *testing.T) {
	for _, cost := range []time.Duration{step, 2 * step, 3 * step} {
		c := newCluster(t, "m1", "m2", "m3", "m4", "m5")
		idle := map[string]time.Time{}
		c.lag = func(_, dst string) []int {
			if idle[dst].Before(c.now) {
				idle[dst] = c.now
			}
			if idle[dst].Sub(c.now) > 100*step {
				return nil
			}
			idle[dst] = idle[dst].Add(cost)
			return []int{int(idle[dst].Sub(c.now) / step)}
		}
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("vip-%d", i))
		}
		c.campaign(names...)
		free := func() int {
			n := 0
			for _, name := range names {
				if c.holder(name) == "" {
					n++
				}
			}
			return n
		}
		took := c.await(12*duration, "all held", func() bool { return free() == 0 })
		t.Logf("%v per packet: all held after %v, %d messages", cost, took, c.sent)
		for range 5 {
			if c.run(duration); free() > 0 {
				t.Errorf("%v per packet: %d leases were lost", cost, free())
			}
		}
	}
}

// TestBatches counts the messages for renewing 1,000 leases.
func TestBatches(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("vip-%d", i))
	}
	c.campaign(names...)
	c.await(2*duration, "all held", func() bool {
		for _, name := range names {
			if c.holder(name) == "" {
				return false
			}
		}
		return true
	})
	held := map[string]int{}
	for _, name := range names {
		held[c.holder(name)]++
	}
	c.run(3 * duration)
	sent, bytes := c.sent, c.bytes
	c.run(10 * duration)
	// Three times per Duration, each member sends 1,000 candidacies to 2 others, and requests or grants its share of
	// the renewals.
	messages, size := (c.sent-sent)/30, (c.bytes-bytes)/30
	t.Logf("leases %v; per third of a lease: %d messages, %d bytes", held, messages, size)
	if messages > 150 {
		t.Errorf("%d messages, want at most 150", messages)
	}
	for _, name := range names {
		if c.holder(name) == "" {
			t.Fatalf("%s has no holder", name)
		}
	}
}
