//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/testenv/lab"
)

// balancing is the file of a node of the flat lab that has no VIP. With checks it is a master's.
func balancing(node, checks string) string {
	return fmt.Sprintf(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: %s
balancers:
- name: kubernetes
  listen: [{address: "127.0.0.1:9443"}]
  backends: {members: {port: 6443, checks: [apiserver]}}
election:
  members: {m2: "10.4.0.2:7946", m3: "10.4.0.3:7946"}
  keyFile: /etc/herald/gossip.key
%s`, node, checks)
}

// newBalancing is the flat lab with m1 as a worker, and m2 and m3 as masters that serve and
// offer it.
func newBalancing(t *testing.T) *flat {
	t.Helper()
	f := newFlat(t)
	for _, m := range flatMasters() {
		checks := "checks: [{name: apiserver, http: {url: \"http://127.0.0.1:6443/readyz\"}}]\n"
		if m == "m1" {
			checks = ""
		}
		f.rewrite(t, m, "herald.yaml", func(string) string { return balancing(m, checks) })
		if m != "m1" {
			boot(t, f.Lab, m+"-apiserver", m+"-speaker")
		}
	}
	return f
}

// leadsToMaster waits until a node's own clients are led to a master.
func leadsToMaster(t *testing.T, n *lab.Node) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: soon}
	eventually(t, soon, func() error {
		answer, err := client.Get("http://127.0.0.1:9443/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s, %w", answer.Status, err)
		}
		return nil
	})
}

// readOnlySettings wraps a command so that it cannot write to /proc/sys, as in a pod.
func readOnlySettings() []string {
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"`, "sh"}
}

// TestManifestRightsBalancer has a worker balance with just the capability of its manifest, and
// where it cannot write to /proc/sys, as in a pod.
func TestManifestRightsBalancer(t *testing.T) {
	f := newBalancing(t)
	given := rights(t, filepath.Join(f.dir, "m1", "herald.yaml"))
	if want := []string{"net_admin"}; !slices.Equal(given, want) {
		t.Fatalf("the manifest gives %v, want %v", given, want)
	}
	t.Run("without net_admin", func(t *testing.T) {
		log := startConfined(t, f.Node("m1-speaker"), []string{"net_raw"})
		f.speaker("m1").says(t, log, "CAP_NET_ADMIN")
	})
	startConfined(t, f.Node("m1-speaker"), given, readOnlySettings()...)
	leadsToMaster(t, f.Node("m1-speaker"))
}

// TestUnitBalancer runs the unit of a worker under a systemd, sandbox and all: it balances, and
// goes on to while it is replaced.
func TestUnitBalancer(t *testing.T) {
	f := newBalancing(t)
	unit, err := manifests.Make(manifests.Systemd, manifests.Options{Config: parseConfig(t, filepath.Join(f.dir, "m1", "herald.yaml"))})
	must(t, err)
	d := bootSystemd(t, f.Node("m1-speaker"), unit)
	d.becomes(t, "ActiveState", "active")
	leadsToMaster(t, f.Node("m1-speaker"))
	_, err = d.ctl(t, "stop")
	must(t, err)
	leadsToMaster(t, f.Node("m1-speaker")) // the kernel does, for a while
	_, err = d.ctl(t, "start")
	must(t, err)
	leadsToMaster(t, f.Node("m1-speaker"))
}
