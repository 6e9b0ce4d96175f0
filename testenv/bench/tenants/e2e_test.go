//go:build e2e

package tenants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/record"
)

// TestRun measures everything once and small, and checks that every measure of the
// last recorded run is present. It checks no values except counts that must be zero.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	programs := map[string]string{"herald": "../../../bin/herald", "herald-testenv": "../../../bin/herald-testenv", "etcd": "/usr/bin/etcd"}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl"} {
		programs[name] = filepath.Join("../../realparts/bin", name)
	}
	if path := os.Getenv("ETCD"); path != "" {
		programs["etcd"] = path
	}
	err := Run(t.Context(), rec, Options{Programs: programs, Repository: "../../..", HAProxy: "/usr/sbin/haproxy", Trials: 1, Quick: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rec.Results {
		if r.Discarded() {
			continue
		}
		if n, ok := r.Value("failed"); ok && n > 0 || strings.HasSuffix(r.Get("measure"), "at rest: writes a minute") && r.Values[0].Value > 0 {
			t.Errorf("%s: %v", r.Name, r.Values)
		}
	}
	kept, err := record.Kept("../../../docs", "tenants")
	if err != nil {
		t.Fatal(err)
	}
	if missing := rec.Missing(kept, func(r record.Result) string { return r.Get("by") + ": " + r.Get("measure") }); len(missing) > 0 {
		t.Errorf("nothing of %q", missing)
	}
}
