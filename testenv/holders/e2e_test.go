//go:build e2e

// This test needs keepalived on the host; `make e2e` installs it.

package holders

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
)

// keepalivedConf keeps the VIP of both families on eth1 by VRRP.
const keepalivedConf = `
vrrp_instance VI_1 {
  state BACKUP
  interface eth1
  virtual_router_id 51
  priority %d
  advert_int 1
  virtual_ipaddress {
    10.4.0.10
  }
}
`

// TestKeepalivedFrozen checks that the observer sees two holders: a frozen keepalived
// leaves its VIP on the node.
func TestKeepalivedFrozen(t *testing.T) {
	dir := t.TempDir()
	keepalived := func(n clab.Node) (lab.Program, error) {
		path := filepath.Join(dir, n.Base+".conf")
		if err := os.WriteFile(path, fmt.Appendf(nil, keepalivedConf, 200-int(n.Base[1])), 0o644); err != nil {
			return lab.Program{}, err
		}
		return lab.Program{
			Binds:   []clab.Bind{{Source: path, Target: "/etc/keepalived/keepalived.conf", ReadOnly: true}},
			Daemons: []lab.Daemon{{Name: "keepalived", Argv: []string{"/usr/sbin/keepalived", "--dont-fork", "--log-console"}}},
		}, nil
	}
	s := newSite(t, keepalived)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Do(s, s.Boot(ctx))
	first := ""
	for first == "" {
		var changed <-chan struct{}
		if first, changed = s.Holder(vip4); first == "" {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal("no node holds the VIP")
			}
		}
	}
	must.Do(s, s.Node(first+"-speaker").Freeze())
	for s.seen(TwoHolders)[vip4] == 0 {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("only the frozen node holds the VIP")
		}
	}
}
