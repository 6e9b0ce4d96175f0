//go:build e2e

package flat

import (
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestLeaseUnderLoad holds a lease of 200 ms, in real time on all masters, while
// every core has more to do than it can: it must not be lost, and its holder
// must answer all the time. It takes LEASE_LOAD_TIME, ten seconds by default.
func TestLeaseUnderLoad(t *testing.T) {
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return "realtime: true\n" + strings.Replace(s, "lease: 3s", "lease: 200ms", 1)
		})
	}
	holder := f.Elect(t)
	before, err := f.Election(t, holder)
	site.Must(t, err)
	if before.Lease != 0.2 || before.Leases[0].Holder != holder {
		t.Fatalf("%s answers; its election is %+v", holder, before)
	}

	from, w := f.Mark(t), site.StartWitness(t)
	measured := site.UnderLoad(t, f.Node("c1"), "LEASE_LOAD_TIME")
	for _, m := range site.FlatMasters() {
		status, err := f.Speaker(m).Status(t)
		site.Must(t, err)
		if status.Realtime != "on" {
			t.Errorf("real time of %s: %s", m, status.Realtime)
		}
		after := status.Election.Leases[0]
		if after.Holder != holder || after.Epoch != before.Leases[0].Epoch {
			site.FailTiming(t, w.Stolen(from.Time), "after %v under load %s says that %s holds the lease, epoch %d; want %s, epoch %d",
				measured, m, after.Holder, after.Epoch, holder, before.Leases[0].Epoch)
		}
	}
	t.Logf("%d answers seen in %v", len(f.Seen.Trace().Sightings), measured)
}
