//go:build e2e

package install

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// makeDebs packs herald as a version with the release program, and repacks the package
// as other versions.
func makeDebs(t *testing.T, version string, others ...string) (debs []string) {
	t.Helper()
	release := site.Get[string](t)(filepath.Abs(site.Part(t, "HERALD_RELEASE")))
	herald := site.Get[string](t)(filepath.Abs(site.Part(t, "HERALD")))
	// A node has its own /tmp.
	dir := site.Get[string](t)(os.MkdirTemp("/var/tmp", "herald-debs-"))
	t.Cleanup(func() { site.Must(t, os.RemoveAll(dir)) })
	run := func(argv ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	deb := func(version string) string {
		debs = append(debs, filepath.Join(dir, fmt.Sprintf("herald_%s_%s.deb", version, runtime.GOARCH)))
		return debs[len(debs)-1]
	}
	run(release, "release", "--version", "v"+version, "--commit", "none", "--time", "1795800000", "--reference", "herald:"+version,
		"--talos", "manifests/talos/service.yaml", "--chart", "manifests/helm/herald", "--packages", "manifests/package/nfpm.yaml",
		"--out", dir, runtime.GOARCH+"="+herald)
	first, content := deb(version), filepath.Join(dir, "content")
	run("dpkg-deb", "--raw-extract", first, content)
	for _, other := range others {
		run("sed", "-i", "s/^Version: .*/Version: "+other+"/", filepath.Join(content, "DEBIAN/control"))
		run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", content, deb(other))
	}
	return debs
}

// packaged is a node with a systemd that runs the installed packages.
type packaged struct {
	systemd
	node    *lab.Node
	address netip.Addr // as the router knows it
}

// dpkg runs the package manager. The trigger of man-db would index the manual pages of
// the whole host.
func (p packaged) dpkg(t *testing.T, args ...string) {
	t.Helper()
	_, err := p.run(site.Context(t), append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--no-triggers", "--force-confold"}, args...)...)
	site.Must(t, err)
}

// files returns all files and folders where packages and services put them, except the
// package manager's own, and other programs' in /run.
func (p packaged) files(t *testing.T) []string {
	t.Helper()
	return strings.Fields(site.MustRun(t, p.node, "sh", "-c",
		`find /etc /usr /var /opt -xdev \( -path /var/lib/dpkg -o -path /var/log \) -prune -o -print; ls -d /run/herald 2>/dev/null || true`))
}

// left returns the files that are new since before.
func (p packaged) left(t *testing.T, before []string) (left []string) {
	t.Helper()
	known := make(map[string]bool)
	for _, file := range before {
		known[file] = true
	}
	for _, file := range p.files(t) {
		if !known[file] {
			left = append(left, file)
		}
	}
	slices.Sort(left)
	return left
}

// TestPackage installs a deb on two nodes, each with a systemd. Herald does not start
// before its file is edited. While the nodes are upgraded in turn, and then one is
// downgraded, the router always has a route. If the other version refuses the file,
// Herald is not restarted. A removal leaves only the file on the node, a purge
// nothing. On the other node an unpackaged Herald, such as a pod's, has taken over by
// then, and keeps its state.
func TestPackage(t *testing.T) {
	debs := makeDebs(t, "0.1.0", "0.2.0")
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500,
		" neighbor 10.0.1.1 remote-as 64512\n neighbor 10.0.1.1 timers connect 1\n neighbor 10.0.3.1 remote-as 64512\n neighbor 10.0.3.1 timers connect 1")})
	site.Boot(t, s.Lab, "r1")
	site.Serve(t, s.Node("far"), ":6443", stub.APIServer("far"))
	site.MustRun(t, s.Node("s"), "sh", "-c", "umount /etc/herald && rmdir /etc/herald") // the site's; the package brings its own

	// The balancer has a table in the kernel, and sets route_localnet.
	conf := func(node, id, router, backend string) string {
		conf := strings.NewReplacer("nodeName: s", "nodeName: "+node, "10.255.0.2", id).Replace(
			site.SpeakerConf([]string{site.VIP4}, "peers: [{address: "+router+", asn: 64500}]"))
		return conf + "balancers: [{name: b, listen: [{address: \"127.0.0.1:9443\"}], backends: {static: {addresses: [\"" + backend + ":6443\"]}}}]\n"
	}
	nodes := []packaged{
		{node: s.Node("s"), address: netip.MustParseAddr("10.0.1.1")},
		{node: s.Node("far"), address: netip.MustParseAddr("10.0.3.1")},
	}
	files := []string{conf("s", "10.255.0.2", "10.0.1.254", "10.0.3.1"), conf("far", "10.255.0.3", "10.0.3.254", "10.0.1.1")}
	routed := func(hops ...netip.Addr) {
		t.Helper()
		site.Eventually(t, site.Soon, func() error {
			got, err := site.Hops(s.Node("r1"), site.VIP4)
			return site.Check(err, !slices.Equal(got, hops), "r1 has the VIP's next hops %v, want %v", got, hops)
		})
	}

	var before [][]string
	for i := range nodes {
		p := &nodes[i]
		p.systemd = bootSystemd(t, p.node, nil)
		p.becomes(t, "LoadState", "not-found")
		before = append(before, p.files(t))

		p.dpkg(t, "--install", debs[0])
		p.becomes(t, "UnitFileState", "disabled")
		if _, err := p.ctl(t, "start"); err == nil {
			t.Error("it starts with an unedited file")
		}
		p.mustCtl(t, "stop")
		site.MustRun(t, p.node, "sh", "-c", `printf %s "$1" >"$0"`, "/etc/herald/herald.yaml", files[i])
		p.mustCtl(t, "enable", "--now")
	}
	routed(nodes[0].address, nodes[1].address)

	routes := site.WatchRoutes(t, s.Node("r1"))
	for _, step := range []struct {
		node packaged
		deb  string
		want string
	}{{nodes[0], debs[1], "0.2.0"}, {nodes[1], debs[1], "0.2.0"}, {nodes[0], debs[0], "0.1.0"}} {
		pid := child(t, step.node.pid, "herald")
		step.node.dpkg(t, "--install", step.deb)
		if got := site.MustRun(t, step.node.node, "dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", "herald"); got != step.want+" installed" {
			t.Errorf("%s has %s, want %s", step.node.node.Name(), got, step.want)
		}
		if child(t, step.node.pid, "herald") == pid {
			t.Errorf("%s still runs the process from before %s", step.node.node.Name(), step.want)
		}
		routed(nodes[0].address, nodes[1].address)
	}
	// This version refuses the file, so the running process stays.
	far, pid := nodes[1], child(t, nodes[1].pid, "herald")
	site.MustRun(t, far.node, "sh", "-c", "echo nonsense >>/etc/herald/herald.yaml")
	far.dpkg(t, "--install", debs[0])
	if child(t, far.pid, "herald") != pid {
		t.Error("it was restarted with a file that it refuses")
	}
	routes.Kept(t)
	if len(routes.Since()) < 6 {
		t.Errorf("three restarts, and the router has seen %v", routes.Since())
	}

	p := nodes[0]
	kernel := func(p packaged) string {
		return site.MustRun(t, p.node, "sh", "-c", "nft list tables && cat /proc/sys/net/ipv4/conf/eth1/route_localnet")
	}
	if got := kernel(p); !strings.Contains(got, "table inet herald_balancer\n") || !strings.HasSuffix(got, "\n1\n") {
		t.Fatalf("no balancer to remove; the kernel has %q", got)
	}
	p.dpkg(t, "--remove", "herald")
	routed(nodes[1].address)
	routes.Kept(t)
	s.HasAddress(t, site.VIP4, false)
	p.becomes(t, "LoadState", "not-found")
	if got := kernel(p); got != "0\n" {
		t.Errorf("left in the kernel is %q", got)
	}
	if diff := cmp.Diff([]string{"/etc/herald", "/etc/herald/herald.yaml"}, p.left(t, before[0])); diff != "" {
		t.Errorf("after the removal (-want +left):\n%s", diff)
	}
	p.dpkg(t, "--purge", "herald")
	if left := p.left(t, before[0]); len(left) > 0 {
		t.Errorf("after a purge there is %q", left)
	}

	far.mustCtl(t, "disable", "--now")
	site.MustRun(t, far.node, "sh", "-c", `cp /usr/bin/herald /opt/herald && printf %s "$1" >"$0"`, "/opt/herald.yaml", files[1])
	site.Daemonise(t, far.node, "/opt/herald", "run", "--config", "/opt/herald.yaml")
	routed(far.address)
	routes = site.WatchRoutes(t, s.Node("r1"))
	balancer := func() string { // with the handle of the table; a new table would have another
		return kernel(far) + site.MustRun(t, far.node, "sh", "-c", "nft --handle list table inet herald_balancer | head -1")
	}
	table := balancer()
	far.dpkg(t, "--purge", "herald")
	if got := balancer(); got != table {
		t.Errorf("the other Herald had in the kernel %q, and has %q", table, got)
	}
	site.MustRun(t, far.node, "/opt/herald", "status") // by its socket
	site.MustRun(t, far.node, "ls", "/var/lib/herald")
	routes.Kept(t)
}
