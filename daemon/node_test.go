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
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
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

// node is a host with an apiserver that can be told how to answer.
type node struct {
	*nettest.Host
	t         *testing.T
	dir       string
	apiserver atomic.Int32 // the status it answers
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Host: nettest.NewHost(t), t: t, dir: t.TempDir()}
	n.apiserver.Store(http.StatusOK)
	n.serve("127.0.0.1:6443")
	n.write(config)
	return n
}

// serve makes the apiserver listen at an address of the node.
func (n *node) serve(address string) {
	n.t.Helper()
	var listener net.Listener
	n.in(func() (err error) {
		listener, err = net.Listen("tcp4", address)
		return err
	})
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

// in runs f inside the node, on a thread that ends with it.
func (n *node) in(f func() error) {
	n.t.Helper()
	must.Do(n.t, netns.In(n.NS, f))
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
	n.AddVeth(name, name+"-peer")
	n.Add(name, cidr)
}

// giveEnd gives the other end of a link, with an address, to another node.
func (n *node) giveEnd(name string, dst *node, cidr string) {
	n.t.Helper()
	name += "-peer"
	must.Do(n.t, n.NL.LinkSetNsFd(n.Link(name), int(dst.NS)))
	dst.SetUp(name)
	dst.Add(name, cidr)
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
	var out []string
	for _, a := range must.Get[[]netlink.Addr](n.t)(n.NL.AddrList(n.Link("lo"), netlink.FAMILY_ALL)) {
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

// announcing starts herald and waits until it announces both addresses.
func (n *node) announcing() *herald {
	n.t.Helper()
	h := n.start()
	n.awaitVIPs(both()...)
	return h
}

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
	n.in(h.cmd.Start)
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

// stop sends SIGTERM, and wants the exit code 0.
func (h *herald) stop(t *testing.T) {
	t.Helper()
	h.signal(t, syscall.SIGTERM)
	h.wantExit(t, 0)
}

func (h *herald) wantExit(t *testing.T, want int) {
	t.Helper()
	if code := h.wait(t); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
}

// kill ends herald without a drain.
func (h *herald) kill(t *testing.T) {
	t.Helper()
	h.signal(t, syscall.SIGKILL)
	h.wait(t)
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

// wantVIPs checks the VIP addresses on lo.
func (n *node) wantVIPs(want ...string) {
	n.t.Helper()
	if got := n.vips(); !slices.Equal(got, want) {
		n.t.Errorf("VIP addresses are %q, want %q", got, want)
	}
}

// awaitStatus waits for a status.
func (n *node) awaitStatus(what string, holds func(admin.Status) bool) {
	n.t.Helper()
	wait.Until(n.t, what, func() bool {
		s, err := n.status()
		return err == nil && holds(s)
	})
}

func (n *node) awaitGeneration(want int) {
	n.t.Helper()
	n.awaitStatus(fmt.Sprintf("generation %d is in force", want), func(s admin.Status) bool {
		return s.Config.Generation == want && s.Config.Error == ""
	})
}
