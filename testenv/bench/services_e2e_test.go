//go:build e2e

package bench

import (
	"cmp"
	"os"
	"slices"
	"testing"
)

// TestRunServices measures everything of Herald once, with few Services, and wants
// every figure to be there. How large they are is not a matter of a test, but where
// they count what must not be.
func TestRunServices(t *testing.T) {
	results, err := RunServices(bounded(t), t.Output(), ServiceOptions{
		Herald: "../../bin/herald", Testenv: "../../bin/herald-testenv", CRDs: "../../manifests/crds",
		APIServer:  cmp.Or(os.Getenv("KUBE_APISERVER"), "../realparts/bin/kube-apiserver"),
		Etcd:       cmp.Or(os.Getenv("ETCD"), "/usr/bin/etcd"),
		Announcers: []string{"herald"}, Quick: true, Logs: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[Measure]int)
	for _, m := range results.Measurements {
		seen[m.Measure]++
		if len(m.Values) == 0 || slices.Min(m.Values) < 0 {
			t.Errorf("%+v", m)
		}
		switch m.Measure {
		case PowerLossSplit, PartitionSplit, SteadyWrites:
			if slices.Max(m.Values) > 0 {
				t.Errorf("%s: %s", m.Measure, m.text())
			}
		case NodeDrainARP, NodeDrainBGP, SpeakerRestartARP, SpeakerRestartBGP:
			if m.Values[1] < 200 {
				t.Errorf("%s: only %s", m.Measure, m.text())
			}
		}
	}
	for _, m := range []Measure{
		EndpointReady, EndpointReadyTold, EndpointUnready, EndpointUnreadyTold, EventCPU,
		PowerLossTaken, PowerLossOutage, PowerLossSplit, PartitionTaken, PartitionOutage, PartitionSplit,
		NodeDrainARP, NodeDrainBGP, SpeakerRestartARP, SpeakerRestartBGP, Restart, RestartFirst,
		GrowthCreate, GrowthComplete, GrowthCPU, GrowthWrites, GrowthEvents,
		MemorySpeaker, SteadyWrites, SteadyReads, SteadyLeases, SteadyCPU,
	} {
		if seen[m] == 0 {
			t.Errorf("nothing of %q", m)
		}
	}
	for _, name := range []string{"Herald", "FRR", "Kubernetes"} {
		if results.Versions[name] == "" {
			t.Errorf("the versions are %q", results.Versions)
		}
	}
}
