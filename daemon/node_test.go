package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/recorder"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "herald-daemon")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "herald")
	build := exec.Command("go", "build", "-race", "-o", binary, "github.com/herald-vip/herald/cmd/herald")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build herald: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// binary is the herald under test, set once by TestMain.
var binary string

// node is a network namespace with an apiserver that can be told how to answer.
type node struct {
	t         *testing.T
	dir       string
	ns        netns.NsHandle
	links     *netlink.Handle
	apiserver atomic.Int32 // the status it answers
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root for network namespaces: run with sudo")
	}
	n := &node{t: t, dir: t.TempDir()}
	n.apiserver.Store(http.StatusOK)
	var listener net.Listener
	onThread(t, func() error {
		ns, err := netns.New()
		if err != nil {
			return err
		}
		n.ns = ns
		if n.links, err = netlink.NewHandleAt(ns); err != nil {
			return err
		}
		lo, err := n.links.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := n.links.LinkSetUp(lo); err != nil {
			return err
		}
		listener, err = net.Listen("tcp4", "127.0.0.1:6443")
		return err
	})
	n.serveOn(listener)
	t.Cleanup(func() {
		n.links.Close()
		n.ns.Close()
	})
	n.write(config)
	return n
}

// serve has the apiserver listen at another address of the node.
func (n *node) serve(address string) {
	n.t.Helper()
	var listener net.Listener
	onThread(n.t, func() error {
		err := netns.Set(n.ns)
		if err == nil {
			listener, err = net.Listen("tcp4", address)
		}
		return err
	})
	n.serveOn(listener)
}

func (n *node) serveOn(listener net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(n.apiserver.Load()))
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	n.t.Cleanup(func() {
		server.Close()
		<-served
	})
}

// onThread runs f on its own thread, which may end in any namespace.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := errors.New("it has not returned: it may have failed the test")
		defer func() { done <- err }()
		err = f()
	}()
	must.Do(t, <-done)
}

const config = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: control-plane
  addresses: [10.99.0.10, "fd00:99::10"]
  announce: bgp
  checks: [apiserver]
  linger: 100ms
checks:
- name: apiserver
  http: {url: "http://127.0.0.1:6443/readyz"}
  interval: 20ms
bgp:
  asn: 64512
  routerID: 10.0.1.1
  peers:
  - {address: 127.0.0.9, asn: 64500, families: [ipv4, ipv6]}
admin: {socket: DIR/herald.sock}
metrics: {listen: "127.0.0.1:9474"}
`

// flatConfig is of an election of one.
const flatConfig = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- name: control-plane
  addresses: [10.4.0.10]
  announce: arp
  checks: [apiserver]
checks:
- name: apiserver
  http: {url: "http://127.0.0.1:6443/readyz"}
  interval: 20ms
election:
  members: {m1: "10.4.0.1:7946"}
  insecure: true
admin: {socket: DIR/herald.sock}
`

// addLink adds a link with an address. Its other end is in the same namespace.
func (n *node) addLink(name, cidr string) {
	n.t.Helper()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
	addr := must.Get[*netlink.Addr](n.t)(netlink.ParseAddr(cidr))
	must.Do(n.t, n.links.LinkAdd(pair))
	for _, end := range []string{pair.Name, pair.PeerName} {
		link, err := n.links.LinkByName(end)
		if err == nil {
			err = n.links.LinkSetUp(link)
		}
		if err == nil && end == name {
			err = n.links.AddrAdd(link, addr)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// addAddress adds another address to a link.
func (n *node) addAddress(name, cidr string) {
	n.t.Helper()
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		n.t.Fatal(err)
	}
	link, err := n.links.LinkByName(name)
	if err == nil {
		err = n.links.AddrAdd(link, addr)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// giveEnd gives the other end of a link, with an address, to another node.
func (n *node) giveEnd(name string, dst *node, cidr string) {
	n.t.Helper()
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		n.t.Fatal(err)
	}
	end, err := n.links.LinkByName(name + "-peer")
	if err == nil {
		err = n.links.LinkSetNsFd(end, int(dst.ns))
	}
	if err == nil {
		end, err = dst.links.LinkByName(name + "-peer")
	}
	if err == nil {
		err = errors.Join(dst.links.LinkSetUp(end), dst.links.AddrAdd(end, addr))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) file() string { return filepath.Join(n.dir, "herald.yaml") }

func (n *node) write(text string) { n.writeFile(n.file(), strings.ReplaceAll(text, "DIR", n.dir)) }

func (n *node) writeFile(file, text string) {
	n.t.Helper()
	tmp := file + ".new"
	must.Do(n.t, os.WriteFile(tmp, []byte(text), 0o600))
	must.Do(n.t, os.Rename(tmp, file))
}

// vips are the VIP addresses on lo.
func (n *node) vips() []string {
	n.t.Helper()
	lo := must.Get[netlink.Link](n.t)(n.links.LinkByName("lo"))
	addrs := must.Get[[]netlink.Addr](n.t)(n.links.AddrList(lo, netlink.FAMILY_ALL))
	var out []string
	for _, a := range addrs {
		if ip, _ := netip.AddrFromSlice(a.IP); !ip.IsLoopback() {
			out = append(out, ip.Unmap().String())
		}
	}
	slices.Sort(out)
	return out
}

func both() []string { return []string{"10.99.0.10", "fd00:99::10"} }

// herald is a running speaker.
type herald struct {
	cmd  *exec.Cmd
	log  *recorder.Log
	done chan error
}

func (n *node) start() *herald { return n.startWith(n.file()) }

func (n *node) startWith(file string) *herald { return n.startAs(binary, "run", "--config", file) }

// startAs starts herald by a command line.
func (n *node) startAs(name string, args ...string) *herald {
	n.t.Helper()
	return n.launch(exec.Command(name, args...))
}

// launch starts herald, and reads its log unless that goes elsewhere.
func (n *node) launch(cmd *exec.Cmd) *herald {
	n.t.Helper()
	h := &herald{cmd: cmd, log: &recorder.Log{}, done: make(chan error, 1)}
	if cmd.Stderr == nil {
		cmd.Stderr = h.log
	}
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+filepath.Join(n.dir, "state"))
	onThread(n.t, func() error {
		if err := netns.Set(n.ns); err != nil {
			return err
		}
		return h.cmd.Start()
	})
	go func() { h.done <- h.cmd.Wait() }()
	n.t.Cleanup(func() {
		if h.cmd.ProcessState == nil {
			_ = h.cmd.Process.Kill()
			<-h.done
		}
		if n.t.Failed() {
			n.t.Logf("herald's log:\n%s", h.log)
		}
		if strings.Contains(h.log.String(), "DATA RACE") {
			n.t.Error("herald has a data race")
		}
	})
	return h
}

func (h *herald) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must.Do(t, h.cmd.Process.Signal(s))
}

// wait returns the exit code.
func (h *herald) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-h.done:
		h.done <- err
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return h.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatal("herald does not end")
		return -1
	}
}

func (n *node) status() (admin.Status, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	return admin.NewClient(filepath.Join(n.dir, "herald.sock")).Status(ctx)
}

func (n *node) awaitVIPs(want ...string) {
	n.t.Helper()
	wait.Until(n.t, fmt.Sprintf("VIP addresses are %q", want), func() bool { return slices.Equal(n.vips(), want) })
}

func (n *node) awaitGeneration(want int) {
	n.t.Helper()
	wait.Until(n.t, fmt.Sprintf("generation %d is in force", want), func() bool {
		s, err := n.status()
		return err == nil && s.Config.Generation == want && s.Config.Error == ""
	})
}
