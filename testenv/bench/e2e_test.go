//go:build e2e

// These tests need FRR, BIRD, keepalived and curl on the host and the binaries
// in bin, as `make e2e` installs and builds them.

package bench

import (
	"context"
	"testing"
	"time"
)

// bounded is a test's context, with an end long after what any of these tests takes: what hangs
// is to be told of by its own error.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestRun makes a fault of every kind of lab once and wants every figure to be
// there. How large they are is not a matter of a test.
func TestRun(t *testing.T) {
	logs := t.TempDir()
	results, err := Run(bounded(t), t.Output(), Options{
		Topologies: "../topologies", Herald: "../../bin/herald", Testenv: "../../bin/herald-testenv",
		Speakers: Speakers(), Only: []string{"registry killed", "drain", "power loss"}, Trials: 1, Connections: 200, Logs: logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, trial := range results.Trials {
		seen[trial.Router]++
		if trial.Router == NoRouter {
			if trial.Taken == nil || *trial.Taken <= 0 || trial.Holders < 1 || trial.Attempts < 200 {
				t.Errorf("%+v", trial)
			}
			if trial.Fault == powerLoss && (trial.Failed == 0 || trial.Outage <= 0 || trial.After == nil) {
				t.Errorf("%+v", trial)
			}
			continue
		}
		if trial.Gone == nil || *trial.Gone <= 0 || trial.Back == nil || *trial.Back <= 0 || trial.Attempts < 50 || trial.Open {
			t.Errorf("%+v", trial)
		}
		if trial.Planned && trial.Attempts < 200 {
			t.Errorf("a planned change with too few connections: %+v", trial)
		}
		if trial.Fault == "registry killed" {
			if floor, ok := trial.Floor(); !ok || floor <= 0 || floor > 10*time.Second {
				t.Errorf("no floor in %+v", trial)
			}
		}
	}
	// Herald and FRR: registry, drain, three power losses; Herald with a bridge: registry, drain;
	// FRR's slow script: registry. Herald on
	// the flat layer 2, twice: drain, power loss; keepalived, twice: power loss.
	if seen["FRR"] != 13 || seen["BIRD"] != 13 || seen[NoRouter] != 6 {
		t.Errorf("the trials are %v", seen)
	}
	if results.Versions["FRR"] == "" || results.Versions["BIRD"] == "" || results.Versions["keepalived"] == "" || results.Versions["Herald"] == "" {
		t.Errorf("the versions are %q", results.Versions)
	}
}
