package balance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/election"
)

// Internal and External are the types of a load balancer.
const (
	Internal = "internal"
	External = "external"
)

// voters is how many masters vote. The last one has no vote: no other node's file names it.
const voters = 3

// heraldConf is Herald's configuration on a machine. Masters say whether their server is
// well; workers balance.
func (l *Lab) heraldConf(machine, kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: %s\n", machine)
	if machine[0] == 'm' {
		fmt.Fprintf(&b, `vips:
- name: control-plane
  addresses: [10.6.0.100]
  announce: arp
  checks: [apiserver]
  bridge: false
checks:
- name: apiserver
  http: {url: "http://127.0.0.1:%d/readyz"}
`, BackendPort)
	} else {
		mode := "kernel"
		if machine == l.options.Proxy {
			mode = "proxy"
		}
		fmt.Fprintf(&b, `loadBalancer:
  type: %s
balancers:
- name: apiserver
  listen:
  - address: 127.0.0.1:%d
  - address: %s:%[2]d
  backends:
    members: {port: %[4]d, checks: [apiserver]}
  mode: %[5]s
`, kind, ListenPort, Address(machine), BackendPort, mode)
	}
	var members []string
	for _, m := range MasterNames()[:voters] {
		members = append(members, fmt.Sprintf(`%s: "%s:7946"`, m, Address(m)))
	}
	fmt.Fprintf(&b, "election:\n  bind: %s:7946\n  members: {%s}\n  keyFile: /etc/herald/gossip.key\n", Address(machine), strings.Join(members, ", "))
	return b.String()
}

func (l *Lab) configureHerald() error {
	key, err := election.NewKey()
	if err != nil {
		return err
	}
	for _, machine := range append(MasterNames(), WorkerNames()...) {
		if err := os.MkdirAll(l.own(machine), 0o755); err != nil {
			return err
		}
		if err := l.writeHerald(machine, Internal); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(l.own(machine), "gossip.key"), []byte(key+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) writeHerald(machine, kind string) error {
	return os.WriteFile(filepath.Join(l.own(machine), "herald.yaml"), []byte(l.heraldConf(machine, kind)), 0o644)
}

// Switch changes loadBalancer.type of a worker's Herald by a reload.
func (l *Lab) Switch(worker, kind string) error {
	if err := l.writeHerald(worker, kind); err != nil {
		return err
	}
	return l.Speaker(worker).Daemons()[0].Signal(unix.SIGHUP)
}
