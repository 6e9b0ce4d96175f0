//go:build e2e

package bench

import (
	"cmp"
	"os"
	"slices"
	"testing"
)

// TestRunBalancers measures everything once, and wants every figure to be there. How
// large they are is not a matter of a test, but where they count what must not be.
func TestRunBalancers(t *testing.T) {
	results, err := RunBalancers(bounded(t), t.Output(), BalancerOptions{
		Herald: "../../bin/herald", Testenv: "../../bin/herald-testenv", HAProxy: cmp.Or(os.Getenv("HAPROXY"), "/usr/sbin/haproxy"),
		Quick: true, Logs: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range results.Figures {
		seen[f.Balancer+f.Path+string(f.Measure)] = true
		if len(f.Values) == 0 || slices.Min(f.Values) < 0 {
			t.Errorf("%+v", f)
		}
		if f.Balancer != viaHerald {
			continue
		}
		switch f.Measure {
		case Spread:
			if f.uneven() > 0.05 {
				t.Errorf("%s, %s: %s", f.Measure, f.Path, f.text())
			}
		case DrainedFailed, DrainedLost, JoinedFailed, LeftFailed, RestartLost, CrashLost, UpgradeLost, ExternalLost:
			if wrong, all := f.wrong(); wrong > 0 || all == 0 {
				t.Errorf("%s: %s", f.Measure, f.text())
			}
		}
	}
	for _, path := range []string{local, remote} {
		for _, way := range []string{without(path), direct, viaHerald, viaHAProxy, viaProxy} {
			for _, m := range []BalancerMeasure{Rate, ConnectionCPU, ConnectionBusy, FixedP99, Throughput1, Throughput8, GigabyteCPU1, GigabyteCPU8} {
				if !seen[way+path+string(m)] {
					t.Errorf("nothing of %q, %s, %s", m, path, way)
				}
			}
		}
	}
	for _, path := range []string{local, remote} {
		for _, m := range []BalancerMeasure{FixedP99, Throughput1} {
			if !seen[directAgain+path+string(m)] {
				t.Errorf("nothing of %q, %s, a second time", m, path)
			}
		}
	}
	if !seen[directTracked+local+string(FixedP99)] {
		t.Errorf("nothing of %q where connections are tracked", FixedP99)
	}
	for _, m := range []BalancerMeasure{
		KilledFailed, KilledOthers, KilledOut, KilledTold, VanishedFailed, VanishedOthers, VanishedOut, DrainedFailed, DrainedLost,
		Joined, JoinedStart, JoinedFailed, Left, LeftFailed, Died, DiedOthers,
		RestartLost, RestartFailed, CrashLost, CrashFailed, UpgradeLost, UpgradeFailed, ExternalLost, ExternalFollow, InternalFollow,
	} {
		if !seen[viaHerald+string(m)] {
			t.Errorf("nothing of %q", m)
		}
	}
	if results.Versions["Herald"] == "" || results.Versions["HAProxy"] == "" {
		t.Errorf("the versions are %q", results.Versions)
	}
}
