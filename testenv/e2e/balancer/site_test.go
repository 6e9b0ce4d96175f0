//go:build e2e

package balancer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// Addresses in e2e-balancer.clab.yml.
const (
	sharedVIP     = "10.5.0.10"
	localAPI      = "127.0.0.1:9443"
	localRegistry = "127.0.0.1:5000"
	localApp      = "127.0.0.1:7001"
)

// balanced is the lab of e2e-balancer.clab.yml: masters with real servers, and workers
// that reach them by local ports. Herald has the race detector.
type balanced struct {
	*lab.Lab
	pki *site.PKI
	// dir has a folder for each node, its Herald's /etc/herald.
	dir string
}

// threeMasters returns the masters of the initial configuration.
func threeMasters() []string { return []string{"m1", "m2", "m3"} }

// newBalanced lays the site out and boots no node.
func newBalanced(t *testing.T) *balanced {
	t.Helper()
	b := &balanced{pki: site.NewPKI(t), dir: t.TempDir()}
	key := site.ReadFile(t, "../../topologies/flat/m1/gossip.key")
	for node, kind := range map[string]string{"m1": "m", "m2": "m", "m3": "m", "m4": "m4", "w1": "w", "w2": "w"} {
		conf := site.ReadFile(t, "../../topologies/e2e-balancer/"+kind+".yaml")
		site.Must(t, os.Mkdir(filepath.Join(b.dir, node), 0o755))
		site.Must(t, os.WriteFile(b.conf(node), []byte(conf), 0o600))
		site.Must(t, os.WriteFile(filepath.Join(b.dir, node, "gossip.key"), []byte(key), 0o600))
	}
	parts := site.Images()
	parts["herald"] = lab.Binary(site.Part(t, "HERALD_RACE"))
	parts["haproxy"] = lab.Binary("/usr/sbin/haproxy")
	b.Lab = site.StartTopology(t, "../../topologies/e2e-balancer.clab.yml",
		map[string]string{"PKI_DIR": b.pki.Dir, "HERALD_DIR": b.dir, "REGISTRY_DIR": t.TempDir()}, parts)
	t.Cleanup(func() {
		for _, n := range b.Nodes() {
			if strings.HasSuffix(n.Name(), "-speaker") {
				site.Sane(t, n)
			}
		}
	})
	return b
}

func (b *balanced) conf(node string) string { return filepath.Join(b.dir, node, "herald.yaml") }

// speaker returns the Herald of a node.
func (b *balanced) speaker(node string) site.Speaker {
	return site.Speaker{Node: b.Node(node + "-speaker")}
}

// rewrite changes the configuration of a node, and makes its Herald reload it.
func (b *balanced) rewrite(t *testing.T, node string, change func(string) string) {
	t.Helper()
	old := site.ReadFile(t, b.conf(node))
	now := change(old)
	if now == old {
		t.Fatalf("no change in the configuration of %s:\n%s", node, old)
	}
	site.Must(t, os.WriteFile(b.conf(node)+".new", []byte(now), 0o600))
	site.Must(t, os.Rename(b.conf(node)+".new", b.conf(node)))
	if n := b.speaker(node); n.Running() {
		site.Must(t, n.Daemon("herald").Signal(unix.SIGHUP))
	}
}

// herald runs herald's command line on a node.
func (b *balanced) herald(t *testing.T, node string, args ...string) {
	t.Helper()
	site.MustRun(t, b.speaker(node).Node, append([]string{"herald"}, args...)...)
}

// status returns the status of a node's Herald, without starting a program there.
func (b *balanced) status(t *testing.T, node string) (admin.Status, error) {
	t.Helper()
	n := b.speaker(node)
	if !n.Running() {
		return admin.Status{}, fmt.Errorf("the Herald of %s does not run", node)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return admin.NewClient(fmt.Sprintf("/proc/%d/root/run/herald/herald.sock", n.Daemon("herald").Pid())).Status(ctx)
}

// balancer returns the status of one of a node's balancers.
func (b *balanced) balancer(t *testing.T, node, name string) (admin.Balancer, error) {
	t.Helper()
	status, err := b.status(t, node)
	if err != nil {
		return admin.Balancer{}, err
	}
	for _, l := range status.Balancers {
		if l.Name == name {
			return l, nil
		}
	}
	return admin.Balancer{}, fmt.Errorf("status of %s has no balancer %s", node, name)
}

// serve waits until exactly these masters serve one of a node's balancers, and returns
// when it saw that.
func (b *balanced) serve(t *testing.T, node, name string, masters ...string) time.Time {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		l, err := b.balancer(t, node, name)
		serving := namesOf(l, func(k balancer.BackendStatus) bool { return k.State == "serving" })
		return site.Check(err, !slices.Equal(serving, masters) || l.Error != "", "%s of %s: %q serve, want %q; %+v", name, node, serving, masters, l)
	})
	return time.Now()
}

// known waits until a node has exactly these backends of a balancer, in any state.
func (b *balanced) known(t *testing.T, node, name string, masters ...string) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		l, err := b.balancer(t, node, name)
		names := namesOf(l, func(balancer.BackendStatus) bool { return true })
		return site.Check(err, !slices.Equal(names, masters), "%s of %s knows %q, want %q", name, node, names, masters)
	})
}

// namesOf returns the names of some backends of a balancer, in order.
func namesOf(l admin.Balancer, which func(balancer.BackendStatus) bool) (names []string) {
	for _, k := range l.Backends {
		if which(k) {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// follow waits until both workers use exactly these masters, for every balancer.
func (b *balanced) follow(t *testing.T, masters ...string) {
	t.Helper()
	for _, worker := range []string{"w1", "w2"} {
		for _, name := range []string{"apiserver", "registry", "app"} {
			b.serve(t, worker, name, masters...)
		}
	}
}

// counted checks that a node has counted at least this many connections of a balancer,
// and that each of these masters received its share.
func (b *balanced) counted(t *testing.T, node, name string, many uint64, masters ...string) {
	t.Helper()
	l := site.Get[admin.Balancer](t)(b.balancer(t, node, name))
	for _, k := range l.Backends {
		if slices.Contains(masters, k.Name) && k.Connections < many*95/100/uint64(len(masters)) {
			t.Errorf("%s counts %d connections to %s, want its share of %d", node, k.Connections, k.Name, many)
		}
	}
}
