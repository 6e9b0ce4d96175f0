//go:build e2e

package tenants

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/must"
)

// TestRun measures everything once and small, and checks that every measure of the
// last recorded run is present. It checks no values except counts that must be zero.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	programs := map[string]string{
		"herald": "../../../bin/herald", "herald-testenv": "../../../bin/herald-testenv", "haproxy": "/usr/sbin/haproxy", "etcd": cmp.Or(os.Getenv("ETCD"), "/usr/bin/etcd"),
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl"} {
		programs[name] = filepath.Join("../../realparts/bin", name)
	}
	must.Do(t, Run(t.Context(), rec, suite.Options{Programs: programs, Repository: "../../..", Trials: 1, Quick: true, Dir: t.TempDir()}))
	for _, r := range rec.Results {
		if r.Discarded() {
			continue
		}
		if n, ok := r.Value("failed"); ok && n > 0 || strings.HasSuffix(r.Get("measure"), "at rest: writes a minute") && r.Values[0].Value > 0 {
			t.Errorf("%s: %v", r.Name, r.Values)
		}
	}
	if missing := rec.Missing(must.Get[*record.Run](t)(record.Kept("../../../docs", "tenants")), func(r record.Result) string { return r.Get("by") + ": " + r.Get("measure") }); len(missing) > 0 {
		t.Errorf("nothing of %q", missing)
	}
}
