package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/balance"
)

// serviceExample are results with something of every kind.
func serviceExample() *ServiceResults {
	return &ServiceResults{
		Setting: Setting{
			Began: time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC), Took: 40 * time.Minute,
			Machine:  Machine{CPU: "a processor", Cores: 2, Memory: 24 << 30, Kernel: "6.18"},
			Versions: map[string]string{"Herald": "1", "MetalLB": "2", "Kubernetes": "3", "FRR": "4"},
		},
		Measurements: []Measurement{
			{"herald", EndpointReady, 1, []float64{0.061, 0.07, 0.065}},
			{"herald", PowerLossTaken, 6, []float64{0.5, 0.7}},
			{"herald", PartitionSplit, 6, []float64{0, 0}},
			{"herald", NodeDrainARP, 0, []float64{0, 5000}},
			{"herald", NodeDrainBGP, 0, []float64{1, 5000}},
			{"herald", Restart, 1001, []float64{1.2, 0.8, 0.9}},
			{"herald", GrowthCPU, 3001, []float64{21}},
			{"herald", GrowthWrites, 3001, []float64{1}},
			{"herald", MemorySpeaker, 1, []float64{48e6, 51e6, 47e6}},
			{"herald", EventCPU, 100, []float64{0.001}},
			{"herald", EventCPU, 10000, []float64{0.0015}},
			{"herald", SteadyWrites, 3001, []float64{0}},
			{"herald", SteadyCPU, 3001, []float64{0.012}},
			{"metallb", EndpointReady, 1, []float64{0.066, 0.068}},
			{"metallb", MemoryController, 1, []float64{57e6}},
			{"metallb", GrowthWrites, 3001, nil},
		},
	}
}

func TestServiceTable(t *testing.T) {
	var b bytes.Buffer
	if err := serviceExample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "services.md", b.Bytes())
}

// TestServiceTargets wants each target met where it is, and missed where not.
func TestServiceTargets(t *testing.T) {
	got := make(map[Measure]bool)
	for _, target := range serviceExample().Targets() {
		got[target.Measure] = target.Met
	}
	want := map[Measure]bool{
		EndpointReady: true, PowerLossTaken: true, PartitionSplit: true, NodeDrainARP: true, NodeDrainBGP: false,
		Restart: true, GrowthCPU: false, MemorySpeaker: false, EventCPU: true, SteadyWrites: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestServiceJSON(t *testing.T) {
	comesBack(t, serviceExample(), ReadServiceJSON, "", "[]", `{"measurements": [{"anouncer": "x"}]}`)
}

func TestServicePublish(t *testing.T) {
	publishes(t, serviceExample(), "MetalLB 2, Kubernetes 3, FRR 4. [All values](benchmarks/2026-11-21.json)")
}

func TestServicesPage(t *testing.T) {
	pageTells(t, "services", ReadServiceJSON)
}

// TestCounted reads an audit log whose last line is being written.
func TestCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const old = `{"verb":"list","objectRef":{"resource":"services"}}` + "\n"
	const text = old +
		`{"verb":"patch","user":{"username":"announcer"},"objectRef":{"resource":"services","namespace":"a","subresource":"status"}}` + "\n" +
		`{"verb":"patch","objectRef":{"resource":"services","namespace":"b","subresource":"status"}}` + "\n" +
		`{"verb":"create","objectRef":{"resour`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &stage{audit: path}
	counts, now, err := s.counted(int64(len(old)))
	if err != nil {
		t.Fatal(err)
	}
	if len(counts) != 1 || now != int64(strings.LastIndexByte(text, '\n')+1) {
		t.Errorf("%v up to %d", counts, now)
	}
	for r, n := range counts {
		if r.what() != "patch services/status" || n != 2 || !r.writes() {
			t.Errorf("%d × %s", n, r.what())
		}
	}
}

// TestUsage asks for what this process takes.
func TestUsage(t *testing.T) {
	before, err := balance.CPUOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum := 0; ; sum++ {
		after, err := balance.CPUOf(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			break
		}
	}
	if bytes, err := rss(os.Getpid()); err != nil || bytes < 1<<20 {
		t.Errorf("%f bytes, %v", bytes, err)
	}
	if _, err := rss(-1); err == nil {
		t.Error("no process has no memory")
	}
}
