//go:build e2e

package services

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/must"
)

// TestRun measures everything of Herald once, with few Services, and checks that every
// measure of the last recorded run is present. It checks no values except counts that
// must be zero.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	programs := map[string]string{
		"herald": "../../../bin/herald", "herald-testenv": "../../../bin/herald-testenv",
		"kube-apiserver": cmp.Or(os.Getenv("KUBE_APISERVER"), "../../realparts/bin/kube-apiserver"),
		"etcd":           cmp.Or(os.Getenv("ETCD"), "/usr/bin/etcd"),
	}
	must.Do(t, run(t.Context(), rec, suite.Options{Programs: programs, CRDs: "../../../manifests/crds", Quick: true, Dir: t.TempDir()}, "herald"))
	for _, r := range rec.Results {
		if r.Discarded() {
			continue
		}
		m := r.Get("measure")
		for _, v := range r.Values {
			if v.Value < 0 || (strings.HasSuffix(m, "two nodes answer") || m == "at rest: writes a minute") && v.Value > 0 {
				t.Errorf("%s: %v", r.Name, v)
			}
		}
		if n, ok := r.Value("connections"); ok && n < 200 {
			t.Errorf("%s: only %v connections", r.Name, n)
		}
	}
	missing := rec.Missing(must.Get[*record.Run](t)(record.Kept("../../../docs", "services")), func(r record.Result) string {
		if r.Get("announcer") != "herald" {
			return ""
		}
		return r.Get("measure")
	})
	if len(missing) > 0 {
		t.Errorf("nothing of %q", missing)
	}
}
