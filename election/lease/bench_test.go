package lease_test

import (
	"fmt"
	"testing"
)

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
