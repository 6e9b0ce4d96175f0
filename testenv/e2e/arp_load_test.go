//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLeaseUnderLoad holds a lease of 200 ms, in real time on all masters, while
// every core has more to do than it can: it must not be lost, and its holder
// must answer all the time. It takes LEASE_LOAD_TIME, ten seconds by default.
func TestLeaseUnderLoad(t *testing.T) {
	measured := 10 * time.Second
	if text := os.Getenv("LEASE_LOAD_TIME"); text != "" {
		var err error
		measured, err = time.ParseDuration(text)
		must(t, err)
	}
	f := newFlat(t)
	for _, m := range flatMasters() {
		f.rewrite(t, m, "herald.yaml", func(s string) string {
			return "realtime: true\n" + strings.Replace(s, "election:\n", "election:\n  lease: 200ms\n", 1)
		})
	}
	holder := f.elect(t)
	before, err := f.election(t, holder)
	must(t, err)
	if before.Lease != 0.2 || before.Leases[0].Holder != holder {
		t.Fatalf("%s answers; its election is %+v", holder, before)
	}

	from := f.seen.Clock()
	for range 2 * runtime.NumCPU() {
		_, err := f.Node("c1").Start(exec.Command("sh", "-c", "while :; do :; done"))
		must(t, err)
	}
	select {
	case <-time.After(measured):
	case <-t.Context().Done():
	}
	for _, m := range flatMasters() {
		status, err := f.speaker(m).status(t)
		must(t, err)
		if status.Realtime != "on" {
			t.Errorf("real time of %s: %s", m, status.Realtime)
		}
		after := status.Election.Leases[0]
		if after.Holder != holder || after.Epoch != before.Leases[0].Epoch {
			t.Errorf("after %v under load %s says that %s holds the lease, epoch %d; want %s, epoch %d",
				measured, m, after.Holder, after.Epoch, holder, before.Leases[0].Epoch)
		}
	}
	f.stays(t, holder, from)
	t.Logf("%d answers seen in %v", len(f.seen.Trace().Sightings), measured)
}
