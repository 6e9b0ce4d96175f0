package lab_test

import (
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestMachine checks that containers of one machine share only its network and name,
// and that no node can write to the host.
func TestMachine(t *testing.T) {
	l := start(t, load(t, "small.clab.yml"), lab.Options{})
	m1, app, c1 := l.Node("m1"), l.Node("m1-app"), l.Node("c1")

	for n, want := range map[*lab.Node]string{m1: "m1\n", app: "m1\n", c1: "c1\n"} {
		if got := run(t, n, "hostname"); got != want {
			t.Errorf("%s has the hostname %q", n.Name(), got)
		}
	}
	const network = "readlink /proc/self/ns/net"
	if run(t, m1, network) != run(t, app, network) || run(t, m1, network) == run(t, c1, network) {
		t.Error("m1 and m1-app should share one network, c1 should have another")
	}
	newTalk(t, app, m1, "127.0.0.1").works()

	if got := run(t, app, "cat /etc/greeting"); got != "hello from a bind\n" {
		t.Errorf("the bind reads %q", got)
	}
	if _, err := app.Run(t.Context(), "sh", "-c", "echo x > /etc/greeting"); err == nil || !strings.Contains(err.Error(), "Read-only file system") {
		t.Errorf("writing to a read-only bind: %v", err)
	}
	for _, path := range []string{"/run/mark-of-m1", "/tmp/mark-of-m1", "/etc/mark-of-m1", "/mark-of-m1"} {
		run(t, m1, "echo m1 > "+path)
		for _, n := range []*lab.Node{app, c1} {
			if _, err := n.Run(t.Context(), "test", "!", "-e", path); err != nil {
				t.Errorf("%s sees %s of m1", n.Name(), path)
			}
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the host sees %s of m1", path)
		}
		if got := run(t, m1, "cat "+path); got != "m1\n" {
			t.Errorf("m1 reads %q from %s", got, path)
		}
	}
	// A process may end between its listing and a closer look, so only count names.
	crowded := func(n *lab.Node) bool { return len(strings.Fields(run(t, n, "echo /proc/[0-9]*"))) > 9 }
	for _, n := range l.Nodes() {
		if crowded(n) {
			t.Errorf("%s sees processes of others", n.Name())
		}
		if got := run(t, n, "ls /sys/class/net/"); !strings.HasPrefix(got, "eth1\n") || !strings.HasSuffix(got, "lo\n") {
			t.Errorf("%s sees the interfaces %q", n.Name(), got)
		}
	}
	must.Get[*lab.Process](t)(app.Start(&exec.Cmd{Args: []string{"sh", "-c", "for i in $(seq 10); do sleep 600 & done; wait"}}))
	wait.Until(t, "m1-app sees ten processes more", func() bool { return crowded(app) })
}

// TestBinds binds folders, files below fresh mounts, and targets reached by symbolic
// links of the node's own tree.
func TestBinds(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "folder/deep"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "folder/deep/file"), []byte("1"), 0o644))
	l := start(t, parse(t, `
name: binds
topology:
  nodes:
    a:
      kind: linux
      entrypoint: sleep
      cmd: infinity
      env: {GREETING: hi}
      binds: ["`+dir+`/folder:/new/place", "`+dir+`/folder/deep/file:/var/run/x/file", "`+dir+`/folder:/tmp/ro:ro"]
`), lab.Options{})
	a := l.Node("a")
	if got := run(t, a, "cat /new/place/deep/file /run/x/file /tmp/ro/deep/file; echo $GREETING"); got != "111hi\n" {
		t.Errorf("binds and environment read %q", got)
	}
	run(t, a, "test ! -e "+dir) // /tmp is its own memory
	run(t, a, "echo -n 2 > /new/place/deep/file")
	if got := string(must.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, "folder/deep/file")))); got != "2" {
		t.Errorf("the host reads %q where the node wrote 2", got)
	}
	if _, err := a.Run(t.Context(), "touch", "/tmp/ro/x"); err == nil {
		t.Error("the node can write to a read-only folder")
	}
}

// TestTwoLabs runs a topology twice in parallel and checks that no trace is left on the host.
func TestTwoLabs(t *testing.T) {
	before := hostVeths(t)
	dir := t.TempDir()
	first := start(t, load(t, "small.clab.yml"), lab.Options{Dir: dir})
	two := start(t, load(t, "small.clab.yml"), lab.Options{})
	for _, l := range []*lab.Lab{first, two} {
		newTalk(t, l.Node("c1"), l.Node("m1"), "10.0.2.1").works()
	}
	must.Do(t, first.Link("c1", "r1").Cut())
	newTalk(t, two.Node("c1"), two.Node("m1"), "10.0.2.1").works()
	must.Do(t, first.Node("m1").PowerOff())
	newTalk(t, two.Node("c1"), two.Node("m1"), "10.0.2.1").works()

	if diff := cmp.Diff(before, hostVeths(t)); diff != "" {
		t.Errorf("the host has other interfaces (-before +now):\n%s", diff)
	}
	if mounts := must.Get[[]byte](t)(os.ReadFile("/proc/self/mountinfo")); strings.Contains(string(mounts), dir) {
		t.Errorf("the host has mounts of the lab:\n%s", mounts)
	}
	if n := first.Node("c1"); filepath.Dir(n.Log()) != dir {
		t.Errorf("the log is %s, want it in %s", n.Log(), dir)
	}
}

// hostVeths returns the host's veth interfaces and bridges.
func hostVeths(t *testing.T) (names []string) {
	t.Helper()
	for _, l := range must.Get[[]netlink.Link](t)(netlink.LinkList()) {
		if l.Type() == "veth" || l.Type() == "bridge" {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// TestStartErrors checks for one clear error and for no leftovers (by goleak and the
// removal of the folder).
func TestStartErrors(t *testing.T) {
	node := func(lines string) string {
		return "name: bad\ntopology:\n  nodes:\n    a: {kind: linux, entrypoint: sleep, cmd: infinity}\n    b: {kind: linux, " + lines + "}\n"
	}
	const sleep = "entrypoint: sleep, cmd: infinity, "
	tests := []struct{ name, topology, want string }{
		{"no image", node("image: 'quay.io/x:1'"), `lab bad: node b: no program for the image "quay.io/x:1"; there are programs for ["herald" "herald-testenv" "quay.io/frrouting/frr" "test"]`},
		{"exec fails", node(sleep + "exec: [ip addr add 1.2.3.4/24 dev eth9]"), `lab bad: node b: exec: node b: ip addr add 1.2.3.4/24 dev eth9: exit status 1: Cannot find device "eth9"`},
		{"exec is unknown", node(sleep + "exec: [no-such-program x]"), "lab bad: node b: exec: node b: find program no-such-program: file does not exist"},
		{"program is unknown", node("entrypoint: no-such-program"), "lab bad: boot b: find program no-such-program: file does not exist"},
		{"bind is missing", node(sleep + "binds: ['/no/such:/x']"), "lab bad: node b: bind /no/such: no such file or directory"},
		{"bind to a folder below a file", node(sleep + "binds: ['/etc:/etc/passwd/x']"), "lab bad: node b: bind to /etc/passwd/x: "},
		{"sysctl is unknown", node(sleep + "sysctls: {net.ipv4.no_such: 1}"), `lab bad: network of b: sysctls of b: set net.ipv4.no_such to "1": open /proc/sys/net/ipv4/no_such: no such file or directory`},
		{"sysctl of the host", node(sleep + "sysctls: {kernel.hostname: x}"), "lab bad: network of b: sysctls of b: kernel.hostname: only net. settings belong to a node"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := lab.Start(t.Context(), slog.New(slog.DiscardHandler), parse(t, tt.topology), lab.Options{Images: images(t), Dir: dir})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v,\nwant %s", err, tt.want)
			}
			if left, _ := os.ReadDir(dir); slices.ContainsFunc(left, os.DirEntry.IsDir) {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestAddressesCanBeUsed checks that a program can listen at every address once the
// lab has started. Duplicate address detection takes a second or two here.
func TestAddressesCanBeUsed(t *testing.T) {
	l := start(t, parse(t, `
name: pair
topology:
  defaults: {kind: linux, entrypoint: sleep, cmd: infinity}
  nodes:
    a:
      sysctls: {net.ipv6.conf.default.accept_dad: 1}
      exec: [ip addr add fd00::1/64 dev eth1]
    b: {}
  links:
  - endpoints: ["a:eth1", "b:eth1"]
`), lab.Options{})
	must.Do(t, l.Node("a").Do(func() error {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP("fd00::1")})
		if err == nil {
			err = c.Close()
		}
		return err
	}))
}
