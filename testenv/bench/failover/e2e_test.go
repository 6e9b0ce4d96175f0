//go:build e2e

// These tests need FRR, BIRD, ExaBGP, keepalived and curl on the host and the binaries
// in bin; `make e2e` installs and builds them.

package failover

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/must"
)

// bounded returns a test context with a deadline far beyond these tests' duration, so
// that a hang is reported by its own error.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func options(t *testing.T, trials int) suite.Options {
	programs := map[string]string{"herald": "../../../bin/herald", "herald-testenv": "../../../bin/herald-testenv"}
	return suite.Options{Programs: programs, Topologies: "../../topologies", Trials: trials, Dir: t.TempDir()}
}

// TestRun makes a fault of every kind of lab once and checks that every figure is
// present, not its value.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	o := options(t, 1)
	o.Only = []string{"registry killed", "drain", "power loss"}
	must.Do(t, errors.Join(RunBGP(bounded(t), rec, o), RunFlat(bounded(t), rec, o), rec.Err()))
	seen := make(map[string]int)
	for _, r := range rec.Results {
		if r.Discarded() {
			t.Logf("inconclusive: %s", r.Name)
			continue
		}
		router := r.Get("router")
		seen[router]++
		units := []string{"ms/gone", "ms/back"}
		switch {
		case router == layer2:
			units = []string{"ms/taken", "holders"}
		case r.Get("fault") == "registry killed":
			units = append(units, "ms/floor")
		}
		for _, unit := range append(units, "connections") {
			if v, ok := r.Value(unit); !ok || v <= 0 || math.IsInf(v, 1) {
				t.Errorf("%s: %v %s", r.Name, v, unit)
			}
		}
		if n, _ := r.Value("connections"); strings.HasPrefix(r.Name, "PlannedChange/") && n < connections {
			t.Errorf("%s: %v connections", r.Name, n)
		}
		if _, ok := r.Value("ms/after"); router == layer2 && ok == strings.HasPrefix(r.Name, "PlannedChange/") {
			t.Errorf("%s: an outage after the end of the fault: %t", r.Name, ok)
		}
	}
	// Herald and FRR: registry, drain, three power losses; Herald with a bridge:
	// registry, drain; Herald beside FRR, ExaBGP, twice, and FRR's slow script: registry.
	// Herald on the flat layer 2, twice: drain, power loss; keepalived, twice: power
	// loss.
	if seen["FRR"] != 16 || seen["BIRD"] != 16 || seen[layer2] != 6 {
		t.Errorf("the trials are %v", seen)
	}
}

// TestGuard checks that the guard comes to a verdict.
func TestGuard(t *testing.T) {
	verdict, err := Guard(bounded(t), record.New(t.Output(), nil), options(t, 3))
	if err != nil || verdict == "" {
		t.Errorf("%q, %v", verdict, err)
	}
}
