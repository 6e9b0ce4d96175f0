//go:build e2e

package flat

import (
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/soak"
)

// TestARPSoak runs speakers built with the race detector through overlapping random
// faults on one segment, and checks that an observer never sees two holders: thirty
// faults, or nightly five hundred. The electorate changes too: by lists, and by
// masters that join and are reinstalled.
func TestARPSoak(t *testing.T) {
	t.Parallel()
	faults := 30
	if site.Nightly() {
		faults = 500
	}
	for name, join := range map[string]bool{"lists": false, "join": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := site.Soak(t, soak.Options{Flat: true, Join: join, Topology: "../../topologies/flat.clab.yml", Seed: 2, Faults: faults})
			if len(report.Trace.Incidents) < faults || report.Holders < faults/4 {
				t.Errorf("%d faults, after which the holder changed %d times: too few to tell anything", len(report.Trace.Incidents), report.Holders)
			}
			if report.Looks["announced"] < faults || report.Looks["withdrawn"] < faults {
				t.Errorf("kernels were compared with their speakers' status only %v times", report.Looks)
			}
		})
	}
}
