//go:build e2e

package flat

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herald-vip/herald/migrate"
	"github.com/herald-vip/herald/migrate/keepalived"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// oldConf is keepalived's, with the VIP's IPv4 address; %d are number and priority of the master.
const oldConf = `global_defs {
  enable_script_security
  script_user root
}
vrrp_script apiserver {
  script "/usr/bin/curl -sf --max-time 1 http://127.0.0.1:6443/readyz -o /dev/null"
  interval 1
}
vrrp_instance control-plane {
  interface eth1
  virtual_router_id 51
  priority %d
  virtual_ipaddress {
    10.4.0.10
  }
  virtual_ipaddress_excluded {
    fd00:4::10
  }
  track_script {
    apiserver
  }
}
`

// TestMigrateFromKeepalived follows docs/migrating.md: it tries Herald with spare
// addresses while keepalived has the VIP, and lets it take over once keepalived has
// been stopped on its holder. Two nodes never answer at the same time.
func TestMigrateFromKeepalived(t *testing.T) {
	t.Parallel()
	f := site.NewFlat(t)
	o := migrate.Options{
		File:    "keepalived.conf",
		KeyFile: "/etc/herald/gossip.key",
		Members: map[string]netip.AddrPort{},
	}
	for i, m := range site.FlatMasters() {
		o.Members[m] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 4, 0, byte(i + 1)}), migrate.GossipPort)
	}
	final := map[string]string{}
	trial := strings.NewReplacer("10.4.0.10", "10.4.0.11", "fd00:4::10", "fd00:4::11", "control-plane", "trial")
	for i, m := range site.FlatMasters() {
		conf := fmt.Sprintf(oldConf, 120-10*i)
		site.Must(t, os.WriteFile(filepath.Join(f.Dir, m, "keepalived.conf"), []byte(conf), 0o644))
		r, err := keepalived.Convert([]migrate.File{{Name: "keepalived.conf", Data: []byte(conf)}}, o)
		site.Must(t, err)
		if !r.Complete() {
			t.Fatalf("not complete: %v\n%s", r.Notes, r.Config)
		}
		// The lab's masters share the host name of this machine.
		final[m] = "nodeName: " + m + "\n" + string(r.Config)
		site.Must(t, os.WriteFile(filepath.Join(f.Dir, m, "herald.yaml"), []byte(trial.Replace(final[m])), 0o644))
	}
	ctx, cancel := context.WithTimeout(t.Context(), site.Soon)
	defer cancel()
	site.Must(t, f.Boot(ctx))
	old := map[string]*lab.Process{}
	for _, m := range site.FlatMasters() {
		var err error
		old[m], err = f.Node(m + "-speaker").Start(exec.Command("keepalived", "--dont-fork", "--log-console", "--use-file=/etc/herald/keepalived.conf",
			"--pid=/etc/herald/a.pid", "--vrrp_pid=/etc/herald/b.pid", "--checkers_pid=/etc/herald/c.pid"))
		site.Must(t, err)
		f.Held(t, "m1") // before the next one starts: two keepaliveds answer until they receive each other
	}
	for _, m := range site.FlatMasters() {
		f.Ready(t, m) // with the spare addresses
	}
	f.Held(t, "m1")

	for _, m := range []string{"m3", "m2", "m1"} {
		site.Must(t, old[m].Stop(t.Context()))
	}
	site.Eventually(t, site.Soon, func() error {
		addresses, err := site.Run(t, f.Node("m1"), "ip", "-o", "address", "show", "dev", "eth1")
		if err == nil && strings.Contains(addresses, "10.4.0.10/") || strings.Contains(addresses, "fd00:4::10/") {
			err = fmt.Errorf("m1 still has the VIP: %s", addresses)
		}
		return err
	})
	replace := func(m string) { f.Rewrite(t, m, "herald.yaml", func(string) string { return final[m] }) }
	replace("m1")
	f.Held(t, "m1")
	replace("m2")
	replace("m3")
	for _, m := range site.FlatMasters() {
		f.Ready(t, m)
	}
	site.Must(t, f.Node("m1-apiserver").Kill())
	f.Held(t, "m2", "m3")
}
