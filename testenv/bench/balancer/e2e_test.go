//go:build e2e

package balancer

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/must"
)

// TestRun measures everything once and checks that every result of the last recorded
// run is present. It checks no values except counts that must be zero.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	programs := map[string]string{
		"herald": "../../../bin/herald", "herald-bench": "../../../bin/herald-bench", "haproxy": cmp.Or(os.Getenv("HAPROXY"), "/usr/sbin/haproxy"),
	}
	must.Do(t, Run(t.Context(), rec, suite.Options{Programs: programs, Trials: 1, Quick: true, Dir: t.TempDir()}))
	for _, r := range rec.Results {
		for _, v := range r.Values {
			if v.Value < 0 {
				t.Errorf("%s: %v", r.Name, v)
			}
		}
		if r.Get("balancer") != viaHerald {
			continue
		}
		m, counted := r.Get("measure"), len(r.Values) == 2
		if m == "connections at each master" && (r.Values[0].Value < 950 || r.Values[0].Value > 1050) { // of 3,000 at three masters
			t.Errorf("%s: %v", r.Name, r.Values)
		}
		planned := strings.HasPrefix(m, "server drained") || strings.HasPrefix(m, "master joins") || strings.HasPrefix(m, "master leaves")
		if counted && (planned || strings.HasSuffix(m, "established connections lost")) && (r.Values[0].Value > 0 || r.Values[1].Value == 0) {
			t.Errorf("%s: %v", r.Name, r.Values)
		}
	}
	if missing := rec.Missing(must.Get[*record.Run](t)(record.Kept("../../../docs", "balancer")), func(r record.Result) string { return r.Name }); len(missing) > 0 {
		t.Errorf("nothing of %q", missing)
	}
}
