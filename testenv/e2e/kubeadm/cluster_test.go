//go:build e2e && kubeadm

package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/clab"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

const (
	guide = "../../../docs/kubeadm.md"
	// version is the cluster's version, next the version of its upgrade: the same source
	// with another version string.
	version, next = "v1.36.3", "v1.36.4"
	// ready bounds the wait for any event in a cluster of real parts on two cores.
	ready = 5 * time.Minute
)

// addresses returns the addresses of the machines.
func addresses() map[string]string {
	return map[string]string{"m1": "10.0.1.1", "m2": "10.0.1.2", "m3": "10.0.1.3", "w1": "10.0.1.9"}
}

// ofTheLab adapts the guide's kubeadm.yaml to these machines: control groups of
// version 1, no right to lower the OOM killer's scores, no name server, one conntrack
// table for all.
const ofTheLab = `kubernetesVersion: ` + version + `
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
oomScoreAdj: 0
resolvConf: ""
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// cluster holds the machines of testdata/kubeadm.clab.yml. A new one has programs and
// images, and no Kubernetes.
type cluster struct {
	*lab.Lab
	vip   string
	disks string // a folder with one for each machine
	// joining fills the guide's placeholders.
	joining *strings.Replacer
	client  *site.Client
	// routes follows the router's routes, from the beginning of an event on; nil if they are not
	// watched.
	routes *site.RouteWatcher
	events []event
}

// event is an event of the cluster, with the client's results meanwhile.
type event struct {
	name                string
	took                time.Duration
	connections, failed int
}

// takesVIP returns the documented router file with a slower BFD.
func takesVIP(t *testing.T) string {
	t.Helper()
	conf := site.ReadFile(t, "../../../manifests/routers/frr.conf")
	return regexp.MustCompile(`(receive|transmit)-interval 50`).ReplaceAllString(conf, "$1-interval 200")
}

// newCluster boots the machines, and a router with this file.
func newCluster(t *testing.T, vip, frr string) *cluster {
	t.Helper()
	c := &cluster{vip: vip, disks: t.TempDir()}
	router := t.TempDir()
	site.Files{"frr.conf": frr, "daemons": site.ReadFile(t, "../../../manifests/routers/frr-daemons")}.Write(t, router)
	for name, address := range addresses() {
		c.furnish(t, name, address)
	}
	images := site.Images()
	images["machine"] = c.machine
	c.Lab = site.StartTopology(t, "testdata/kubeadm.clab.yml", map[string]string{"ROUTER_DIR": router}, images)
	ctx, cancel := context.WithTimeout(t.Context(), ready)
	defer cancel()
	site.Must(t, c.Boot(ctx))
	t.Cleanup(func() { t.Log("\n" + c.table()) })
	return c
}

// connect makes a client on a node connect to an API server's address all the time;
// events are judged by its results.
func (c *cluster) connect(t *testing.T, from, address string) {
	t.Helper()
	c.client = site.Connect(t, &probe.Prober{
		Target: address, Dial: c.Node(from).DialContext, Interval: 10 * time.Millisecond, Timeout: time.Second,
	})
}

// furnish gives a machine an empty disk, and an address.
func (c *cluster) furnish(t *testing.T, machine, address string) {
	t.Helper()
	disk := filepath.Join(c.disks, machine)
	site.Must(t, os.RemoveAll(disk))
	site.Must(t, os.MkdirAll(disk, 0o755))
	c.write(t, machine, "address", address)
	c.write(t, machine, "version", version)
}

// write writes a file to a machine's disk.
func (c *cluster) write(t *testing.T, machine, path, content string) {
	t.Helper()
	path = filepath.Join(c.disks, machine, path)
	site.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	site.Must(t, os.WriteFile(path, []byte(content), 0o600))
}

// machine is the image of a machine.
func (c *cluster) machine(n clab.Node) (lab.Program, error) {
	p := lab.Program{Daemons: []lab.Daemon{{Name: "init", Argv: []string{"/lab/init"}, Socket: "/run/containerd/containerd.sock"}}}
	for target, source := range map[string]string{
		"/disk": filepath.Join(c.disks, n.Name), "/lab": "machine",
		"/opt/kubernetes": "../../realparts/bin", "/opt/herald": "../../../bin", "/opt/manifests": "../../../manifests",
	} {
		source, err := filepath.Abs(source)
		if err != nil {
			return p, err
		}
		p.Binds = append(p.Binds, clab.Bind{Source: source, Target: target, ReadOnly: target != "/disk"})
	}
	return p, nil
}

// sh runs a script on a machine, in /root, and returns its output.
func (c *cluster) sh(t *testing.T, machine, script string) string {
	t.Helper()
	out, err := c.try(t, machine, script)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// reboot reboots a drained machine. At shutdown etcd ends in the proper way and first
// transfers its leadership: without a leader no API server is ready. All other
// processes end abruptly.
func (c *cluster) reboot(t *testing.T, machine string) {
	t.Helper()
	c.sh(t, machine, "systemctl stop kubelet\npkill -TERM -x etcd\nwhile pgrep -x etcd; do sleep 0.1; done")
	site.Must(t, c.Node(machine).PowerOff())
	site.PowerOn(t, c.Node(machine))
}

func (c *cluster) try(t *testing.T, machine, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ready)
	defer cancel()
	return c.Node(machine).Run(ctx, "sh", "-euc", "cd /root; export KUBECONFIG=/etc/kubernetes/admin.conf\n"+script)
}

// block returns the first block below a heading of a guide.
func block(t *testing.T, guide, heading, language string) string {
	t.Helper()
	blocks := site.Blocks(t, guide, heading, language)
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s below %q", guide, language, heading)
	}
	return blocks[0]
}

// replace replaces a text that must occur in a guide.
func replace(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("the guide has no %q any more:\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, new)
}

// everywhere runs a script on several machines in parallel.
func (c *cluster) everywhere(t *testing.T, script string, machines ...string) {
	t.Helper()
	var g errgroup.Group
	for _, m := range machines {
		g.Go(func() error { _, err := c.try(t, m, script); return err })
	}
	site.Must(t, g.Wait())
}

// load imports the images of a version of Kubernetes.
func (c *cluster) load(t *testing.T, version string, machines ...string) {
	t.Helper()
	c.everywhere(t, "ctr -n k8s.io images import /opt/kubernetes/"+version+"/image.tar", machines...)
}

// prepare follows the guide for the files of each master, for a static pod.
func (c *cluster) prepare(t *testing.T, machine, config string) {
	t.Helper()
	c.write(t, machine, "etc/herald/herald.yaml", config)
	c.sh(t, machine, "ln -sf /opt/herald/herald_image.tar .")
	c.sh(t, machine, block(t, guide, "Files on each master", "sh"))
}

// start makes the first master by a guide, with replacements in the guide's file.
func (c *cluster) start(t *testing.T, guide string, replace ...string) {
	t.Helper()
	const heading = "The first master"
	c.write(t, "m1", "root/kubeadm.yaml", strings.NewReplacer(append(replace, "10.99.0.10", c.vip)...).Replace(block(t, guide, heading, "yaml"))+ofTheLab)
	out := c.sh(t, "m1", block(t, guide, heading, "sh"))
	var pairs []string
	for placeholder, flag := range map[string]string{"KEY": "certificate-key", "TOKEN": "token", "HASH": "discovery-token-ca-cert-hash"} {
		m := regexp.MustCompile("--" + flag + ` (\S+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("kubeadm init does not print --%s:\n%s", flag, out)
		}
		pairs = append(pairs, placeholder, m[1])
	}
	c.joining = strings.NewReplacer(append(pairs, "10.99.0.10", c.vip)...)
}

// join makes a master join, by the guide.
func (c *cluster) join(t *testing.T, machine string) {
	t.Helper()
	c.sh(t, machine, c.joining.Replace(block(t, guide, "The other masters", "sh")))
}

// work makes a machine join as a worker.
func (c *cluster) work(t *testing.T, machine string) {
	t.Helper()
	c.sh(t, machine, c.joining.Replace("kubeadm join 10.99.0.10:6443 --token TOKEN --discovery-token-ca-cert-hash HASH"))
}

// kubectl uses the API server in a master's admin.conf, which may be any of them.
func (c *cluster) kubectl(t *testing.T, master, args string) (string, error) {
	t.Helper()
	return c.try(t, master, "kubectl --request-timeout=10s "+args)
}

// nodesReady waits until exactly these nodes are in the cluster and ready.
func (c *cluster) nodesReady(t *testing.T, nodes ...string) {
	t.Helper()
	var want []string
	for _, n := range slices.Sorted(slices.Values(nodes)) {
		want = append(want, n+" True")
	}
	site.Eventually(t, ready, func() error {
		out, err := c.kubectl(t, "m1", `get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'`)
		if err != nil {
			return err
		}
		got := strings.Split(strings.TrimSpace(out), "\n")
		return site.ErrorIf(!slices.Equal(got, want), "the nodes are %q, want %q", got, want)
	})
}

// hops waits until the router's kernel leads the VIP to exactly these machines.
func (c *cluster) hops(t *testing.T, machines ...string) {
	t.Helper()
	var want []netip.Addr
	for _, m := range machines {
		want = append(want, netip.MustParseAddr(c.address(t, m)))
	}
	slices.SortFunc(want, netip.Addr.Compare)
	site.Eventually(t, ready, func() error {
		got, err := site.Hops(c.Node("r1"), c.vip)
		return site.Check(err, !slices.Equal(got, want), "the router's kernel leads to %v, want %v", got, want)
	})
}

// reached waits until each of the machines has counted new connections of the client.
func (c *cluster) reached(t *testing.T, machines ...string) {
	t.Helper()
	before := make(map[string]uint64)
	for _, m := range machines {
		n := site.Get[uint64](t)(c.arrivals(t, m))
		before[m] = n
	}
	for _, m := range machines {
		site.Eventually(t, ready, func() error {
			n, err := c.arrivals(t, m)
			return cmp.Or(err, site.ErrorIf(n <= before[m], "%s has counted %d, as before", m, n))
		})
	}
}

// arrivals returns how many connections a machine has counted.
func (c *cluster) arrivals(t *testing.T, machine string) (uint64, error) {
	status, err := site.Speaker{Node: c.Node(machine)}.Status(t)
	if err != nil {
		return 0, err
	}
	if a := status.VIPs[0].Arrivals; a != nil {
		return a.Arrived, nil
	}
	return 0, fmt.Errorf("%s does not count", machine)
}

// address returns the address of a machine.
func (c *cluster) address(t *testing.T, machine string) string {
	t.Helper()
	return site.ReadFile(t, filepath.Join(c.disks, machine, "address"))
}

// servers returns the addresses of the API server in the kubeconfigs of a machine.
func (c *cluster) servers(t *testing.T, machine string) map[string]string {
	t.Helper()
	servers := make(map[string]string)
	for line := range strings.Lines(c.sh(t, machine, "grep -H server: /etc/kubernetes/*.conf")) {
		file, server, _ := strings.Cut(strings.TrimSpace(line), ":    server: https://")
		servers[filepath.Base(file)] = server
	}
	return servers
}

// wantServers compares them with the expected ones.
func (c *cluster) wantServers(t *testing.T, machine string, want map[string]string) {
	t.Helper()
	if got := c.servers(t, machine); !maps.Equal(got, want) {
		t.Errorf("the kubeconfigs of %s lead to %v, want %v", machine, got, want)
	}
}

// happens runs one event. During it and afterwards at most this many client
// connections may fail, or any number if most is negative. Later events need it to
// succeed.
func (c *cluster) happens(t *testing.T, name string, most int, run func(*testing.T)) {
	t.Helper()
	ok := t.Run(name, func(t *testing.T) {
		since := time.Now()
		if c.routes != nil {
			c.routes.Mark()
		}
		run(t)
		c.client.GoesOn(t, 20)
		e := event{name, time.Since(since), len(c.client.Since(since)), len(c.client.Failed(since))}
		c.events = append(c.events, e)
		if c.routes != nil {
			t.Log("the route:", c.routes.Steps(c.vip))
		}
		if most >= 0 {
			c.client.Few(t, since, most)
		}
	})
	if !ok {
		t.FailNow()
	}
}

// table returns the events as a table for a document.
func (c *cluster) table() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| event\t| took\t| connections\t| failed\t|")
	for _, e := range c.events {
		fmt.Fprintf(w, "| %s\t| %v\t| %d\t| %d\t|\n", e.name, e.took.Round(time.Second), e.connections, e.failed)
	}
	w.Flush()
	return out.String()
}
