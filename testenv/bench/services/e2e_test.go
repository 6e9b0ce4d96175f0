//go:build e2e

package services

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/bench/record"
)

// TestRun measures everything of Herald once, with few Services, and checks that every
// measure of the last recorded run is present. It checks no values except counts that
// must be zero.
func TestRun(t *testing.T) {
	rec := record.New(t.Output(), nil)
	err := Run(t.Context(), rec, Options{
		Herald: "../../../bin/herald", Testenv: "../../../bin/herald-testenv", CRDs: "../../../manifests/crds",
		APIServer:  cmp.Or(os.Getenv("KUBE_APISERVER"), "../../realparts/bin/kube-apiserver"),
		Etcd:       cmp.Or(os.Getenv("ETCD"), "/usr/bin/etcd"),
		Announcers: []string{"herald"}, Quick: true, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
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
	kept, err := record.Kept("../../../docs", "services")
	if err != nil {
		t.Fatal(err)
	}
	missing := rec.Missing(kept, func(r record.Result) string {
		if r.Get("announcer") != "herald" {
			return ""
		}
		return r.Get("measure")
	})
	if len(missing) > 0 {
		t.Errorf("nothing of %q", missing)
	}
}
