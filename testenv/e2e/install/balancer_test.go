//go:build e2e

package install

import (
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// newBalancing returns the flat lab with m1 as a worker, and m2 and m3 as masters that
// serve and advertise it.
func newBalancing(t *testing.T) *site.Flat {
	t.Helper()
	f := site.NewFlat(t)
	for _, m := range site.FlatMasters() {
		checks := "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"
		if m == "m1" {
			checks = ""
		}
		f.Rewrite(t, m, "herald.yaml", func(string) string { return site.BalancingConf(m, checks) })
		if m != "m1" {
			site.Boot(t, f.Lab, m+"-apiserver", m+"-speaker")
		}
	}
	return f
}

// leadsToMaster waits until a node's own clients reach a master.
func leadsToMaster(t *testing.T, n *lab.Node) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: site.Soon}
	site.Eventually(t, site.Soon, func() error {
		got := site.Ask(t.Context(), &client, "http://127.0.0.1:9443/readyz")
		return site.ErrorIf(got != http.StatusOK, "answered %d", got)
	})
}

// TestManifestRightsBalancer lets a worker balance with only the capability of its
// manifest, and where it cannot write to /proc/sys, as in a pod.
func TestManifestRightsBalancer(t *testing.T) {
	f := newBalancing(t)
	given := rights(t, filepath.Join(f.Dir, "m1", "herald.yaml"))
	if want := []string{"net_admin"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	t.Run("without net_admin", func(t *testing.T) {
		log := site.StartConfined(t, f.Node("m1-speaker"), []string{"net_raw"})
		waitForWords(t, f.Speaker("m1"), log, "CAP_NET_ADMIN")
	})
	site.StartConfined(t, f.Node("m1-speaker"), given, site.ReadOnlySettings()...)
	leadsToMaster(t, f.Node("m1-speaker"))
}

// TestUnitBalancer runs the unit of a worker under systemd, with its sandbox: it
// balances, and continues to during its replacement.
func TestUnitBalancer(t *testing.T) {
	f := newBalancing(t)
	d := bootSystemd(t, f.Node("m1-speaker"), unitOf(t, filepath.Join(f.Dir, "m1")))
	d.becomes(t, "ActiveState", "active")
	leadsToMaster(t, f.Node("m1-speaker"))
	_, err := d.ctl(t, "stop")
	site.Must(t, err)
	leadsToMaster(t, f.Node("m1-speaker")) // the kernel does, for a while
	_, err = d.ctl(t, "start")
	site.Must(t, err)
	leadsToMaster(t, f.Node("m1-speaker"))
}
