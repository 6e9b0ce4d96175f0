//go:build e2e

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/stub"
)

// kernelSite is the lab of e2e-kernel.clab.yml.
type kernelSite struct {
	*lab.Lab
	site.Speaker
	file          string
	vips          []string // announced by the kernel; own is announced by Herald's session
	r1, r2        *site.RouteWatcher
	apiserverDies func()
}

const own = "10.99.0.20"

func (k *kernelSite) Node(name string) *lab.Node { return k.Lab.Node(name) }

// newKernelSite runs a routing daemon, configured by a file of manifests/redistribute,
// that announces these VIPs from a table to r1.
func newKernelSite(t *testing.T, daemon, file string, table int, vips ...string) *kernelSite {
	t.Helper()
	dir := t.TempDir()
	files := site.Files{
		"frr.conf": "", "bird.conf": "",
		"r1.conf": site.RouterConf(64500, " neighbor 10.0.1.1 remote-as 64512\n neighbor fd00:1::1 remote-as 64512\n"+
			" address-family ipv6 unicast\n  neighbor fd00:1::1 activate\n exit-address-family"),
		"r2.conf":            site.RouterConf(64500, " neighbor 10.0.2.1 remote-as 64512"),
		"herald/herald.yaml": kernelConf(fmt.Sprintf("announce: kernel, kernel: {table: %d}", table), vips...),
	}
	files[daemon+".conf"] = site.ReadFile(t, "../../../manifests/redistribute/"+file)
	files.Write(t, dir)
	k := &kernelSite{
		file: filepath.Join(dir, "herald", "herald.yaml"),
		Lab:  site.StartLab(t, "e2e-kernel.clab.yml", map[string]string{"KERNEL_DIR": dir}),
		vips: vips,
	}
	k.Speaker = site.Speaker{Node: k.Node("s-speaker")}
	k.apiserverStarts(t)
	k.r1, k.r2 = site.WatchRoutes(t, k.Node("r1")), site.WatchRoutes(t, k.Node("r2"))
	site.Boot(t, k.Lab, "s", "r1", "r2", "s-"+daemon, "s-speaker")
	k.announced(t)
	return k
}

// kernelConf announces the VIPs this way, and own by Herald's session.
func kernelConf(how string, vips ...string) string {
	return fmt.Sprintf(`apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: s
vips:
- {name: control-plane, addresses: ["%s"], %s, checks: [apiserver]}
- {name: own, addresses: [%s], announce: bgp, checks: [apiserver]}
checks:
- {name: apiserver, http: {url: "http://127.0.0.1:6443/readyz"}}
bgp:
  asn: 64512
  peers: [{address: 10.0.2.254, asn: 64500}]
`, strings.Join(vips, `", "`), how, own)
}

// byOwnSession announces the first VIP by Herald's session for a while, and then as before.
func (k *kernelSite) byOwnSession(t *testing.T) {
	t.Helper()
	before := site.ReadFile(t, k.file)
	reload := func(text string) {
		site.Must(t, os.WriteFile(k.file, []byte(text), 0o644))
		site.Must(t, k.Node("s-speaker").Daemon("herald").Signal(unix.SIGHUP))
	}
	hasRoute := func(router string, want bool) { k.hasRoute(t, router, k.vips[0], want) }
	reload(kernelConf("announce: bgp, linger: 3s", k.vips[0]))
	hasRoute("r2", true)
	hasRoute("r1", false)
	k.mark()
	reload(before) // the address is on lo for a while
	k.announced(t)
	hasRoute("r2", false)
	if steps := k.r1.Steps(k.vips[0]); len(steps) != 1 {
		t.Errorf("the changes of the route to %s are %v", k.vips[0], steps)
	}
}

func (k *kernelSite) apiserverStarts(t *testing.T) {
	t.Helper()
	k.apiserverDies = site.Serve(t, k.Node("s"), ":6443", stub.APIServer("s"))
}

// routed waits until both routers have the routes to their VIPs, or none.
func (k *kernelSite) routed(t *testing.T, want bool) {
	t.Helper()
	k.hasRoute(t, "r2", own, want)
	for _, vip := range k.vips {
		k.hasRoute(t, "r1", vip, want)
	}
}

// hasRoute waits until a router has a route to a VIP, or none.
func (k *kernelSite) hasRoute(t *testing.T, router, vip string, want bool) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		list, err := site.KernelRoutes(k.Node(router), vip)
		return site.Check(err, len(list) > 0 != want, "%s has the routes %v to %s", router, list, vip)
	})
}

func (k *kernelSite) announced(t *testing.T) {
	t.Helper()
	k.routed(t, true)
	k.Shows(t, func(s admin.Status) error {
		v := s.VIPs[0]
		return site.ErrorIf(v.Told() != "announced" || v.Announce != speaker.ByKernel || v.Table == 0, "status says %+v", v)
	})
	ready, err := site.Run(t, k.Node("s-speaker"), "herald", "status")
	if err != nil || !strings.Contains(ready, "by the kernel's table") {
		t.Errorf("%v: herald status does not mention the table:\n%s", err, ready)
	}
}

// tableEmpty waits until the kernel of s has no route of Herald's.
func (k *kernelSite) tableEmpty(t *testing.T) {
	t.Helper()
	site.Eventually(t, site.Soon, func() error {
		out, err := site.Run(t, k.Node("s"), "sh", "-c", "ip route show table all proto 213; ip -6 route show table all proto 213")
		return site.ErrorIf(err != nil || out != "", "%v: there is\n%s", err, out)
	})
}

// TestKernelRoutes makes FRR and BIRD announce a VIP from a kernel table, with the
// documented files, while a session of Herald's announces another. Then it stops the
// VIPs' server, drains the node, and stops Herald.
func TestKernelRoutes(t *testing.T) {
	for _, tt := range []struct {
		name, daemon, file string
		table              int
		vips               []string
	}{
		{"FRR", "frr", "frr.conf", 254, []string{site.VIP4, site.VIP6}},
		{"BIRD", "bird", "bird.conf", 201, []string{site.VIP4, site.VIP6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKernelSite(t, tt.daemon, tt.file, tt.table, tt.vips...)
			gone := func() {
				t.Helper()
				k.routed(t, false)
				k.tableEmpty(t)
			}

			k.apiserverDies()
			gone()
			k.apiserverStarts(t)
			k.announced(t)

			k.byOwnSession(t)

			// First the metric announces that the route is about to leave.
			k.mark()
			site.MustRun(t, k.Node("s-speaker"), "herald", "drain")
			k.routed(t, false)
			log := site.ReadFile(t, k.Node("r1").Log())
			for _, vip := range k.vips {
				k.once(t, vip)
				if !strings.Contains(log, "metric 16777215") {
					t.Errorf("r1 did not learn that %s was about to leave:\n%s", vip, log)
				}
			}
			site.MustRun(t, k.Node("s-speaker"), "herald", "undrain")
			k.announced(t)

			site.Kill(t, k.Node("s-speaker"))
			gone()
			site.Start(t, k.Node("s-speaker"))
			k.announced(t)

			site.Must(t, k.Node("s-speaker").Daemon("herald").Signal(unix.SIGSTOP))
			gone()
		})
	}
}

func (k *kernelSite) mark() { k.r1.Mark(); k.r2.Mark() }

// once checks that the route to a VIP went exactly once since the last mark, and did not come
// again.
func (k *kernelSite) once(t *testing.T, vip string) {
	t.Helper()
	if steps := k.r1.Steps(vip); len(steps) != 1 || len(steps[0].NextHops) != 0 {
		t.Errorf("the changes of the route to %s are %v", vip, steps)
	}
}
