//go:build e2e

// This test needs FRR on the host; `make e2e` installs it.

package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

// TestFRRConfigError checks that a bad configuration fails the boot with FRR's own
// reason. The tests of e2e show that FRR and BIRD run in a lab and detect its faults.
func TestFRRConfigError(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "frr.conf")
	must.Do(t, os.WriteFile(conf, []byte("router bgp 64501\n neighbor nonsense\n"), 0o644))
	daemons := filepath.Join(filepath.Dir(conf), "daemons")
	must.Do(t, os.WriteFile(daemons, []byte("bgpd=yes\n"), 0o644))
	topology := &clab.Topology{Name: "bad", Nodes: []clab.Node{{
		Name: "r1", Kind: clab.Linux, Image: "frr", Hostname: "r1",
		Binds: []clab.Bind{{Source: conf, Target: "/etc/frr/frr.conf"}, {Source: daemons, Target: "/etc/frr/daemons"}},
	}}}
	l := start(t, topology, lab.Options{Hold: true, Images: map[string]lab.Image{"frr": lab.FRR}})
	if err := l.Boot(t.Context()); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("boot: %v", err)
	}
}
