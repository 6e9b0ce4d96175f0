//go:build e2e

package flat

import (
	"os"
	"strings"
	"testing"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/soak"
)

// TestARPSoak runs speakers built with the race detector through overlapping random
// faults on one segment, and checks that an observer never sees two holders: thirty
// faults, or nightly five hundred. The electorate changes too: by lists, and by
// masters that join and are reinstalled.
func TestARPSoak(t *testing.T) {
	t.Parallel()
	faults := site.Scale(500, 30)
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

// TestLeaseUnderLoad holds a lease of 200 ms, with real-time priority on all masters,
// while every core is overloaded. The lease must not be lost, and its holder must
// answer all the time. It takes LEASE_LOAD_TIME, ten seconds by default.
//
// Three nodes share the processors of this machine. Go's sweeper waits a whole turn
// for another thread of its process, and two nodes can keep both processors from the
// third. A node on its own machine has another processor for that thread; here the
// test shortens the turns of real time instead.
func TestLeaseUnderLoad(t *testing.T) {
	const turn = "/proc/sys/kernel/sched_rr_timeslice_ms"
	before := site.ReadFile(t, turn)
	site.Must(t, os.WriteFile(turn, []byte("5"), 0))
	t.Cleanup(func() { site.Must(t, os.WriteFile(turn, []byte(before), 0)) })
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		f.Rewrite(t, m, "herald.yaml", func(s string) string {
			return "realtime: true\n" + strings.Replace(s, "lease: 3s", "lease: 200ms", 1)
		})
	}
	holder := f.Elect(t)
	election := site.Get[*admin.Election](t)(f.Election(t, holder))
	if election.Lease != 0.2 || election.Leases[0].Holder != holder {
		t.Fatalf("%s answers; its election is %+v", holder, election)
	}

	from, w := f.Mark(t), site.StartWitness(t)
	measured := site.UnderLoad(t, f.Node("c1"), "LEASE_LOAD_TIME")
	for _, m := range site.FlatMasters() {
		status := site.Get[admin.Status](t)(f.Speaker(m).Status(t))
		if status.Realtime != "on" {
			t.Errorf("real time of %s: %s", m, status.Realtime)
		}
		after := status.Election.Leases[0]
		if after.Holder != holder || after.Epoch != election.Leases[0].Epoch {
			site.FailTiming(t, w.Stolen(from.Time), "after %v under load %s reports that %s holds the lease, epoch %d; want %s, epoch %d",
				measured, m, after.Holder, after.Epoch, holder, election.Leases[0].Epoch)
		}
	}
}
