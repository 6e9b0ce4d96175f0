//go:build e2e

package session

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/soak"
)

// TestSoak is a short `make soak`. Speakers built with the race detector run through a
// round of faults and a planned change, nightly two, and the kernels of routers and
// masters are judged.
func TestSoak(t *testing.T) {
	long, least := 20*time.Second, 15
	if site.Nightly() {
		long, least = time.Minute, 30
	}
	report := site.Soak(t, soak.Options{
		Topology: "../../topologies/bgp.clab.yml",
		Seed:     1249, // 20 kinds of faults, and much to judge
		Storm:    25 * time.Second,
		Time:     long,                   // until its last round ends
		Slack:    2 * time.Second,        // it may run beside other tests
		BFD:      300 * time.Millisecond, // slow enough that a busy machine loses no sessions
	})
	if report.Judged < least {
		t.Errorf("only %d times a route or an address had to go: too few to prove anything", report.Judged)
	}
}
