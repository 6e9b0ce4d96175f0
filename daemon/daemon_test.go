// The tests run the real binary as a process, built with the race detector, in its own network namespace.
package daemon_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestLife(t *testing.T) {
	n := newNode(t)
	n.apiserver.Store(http.StatusInternalServerError)
	h := n.start()
	n.awaitStatus("the check has spoken", func(s admin.Status) bool {
		return s.Checks[0].State == health.Unhealthy
	})
	if got := n.vips(); len(got) != 0 {
		t.Fatalf("bound before healthy: %q", got)
	}
	n.apiserver.Store(http.StatusOK)
	n.awaitVIPs(both()...)
	n.apiserver.Store(http.StatusServiceUnavailable)
	n.awaitVIPs()
	n.apiserver.Store(http.StatusOK)
	n.awaitVIPs(both()...)
	s, err := n.status()
	if err != nil || s.VIPs[0].LastWithdrawal == nil || s.VIPs[0].LastWithdrawal.Took <= 0 {
		t.Errorf("status %+v, %v", s, err)
	}
	withdrawn := func(e eventlog.Event) bool {
		return e.What == "vip withdrawn" && e.About == "vip=control-plane address=10.99.0.10" && strings.Contains(e.Why, ": 503") && e.Level == slog.LevelWarn
	}
	if !slices.ContainsFunc(s.Events, withdrawn) {
		t.Errorf("the withdrawal is none of the last events: %+v", s.Events)
	}
	h.stop(t)
	n.wantVIPs()
	log := h.log.String()
	for _, stage := range []string{"vip draining", "vip lingering"} {
		if !strings.Contains(log, stage) {
			t.Errorf("SIGTERM did not go through %q", stage)
		}
	}
}

// A log driver that ends, or a `| tee`, takes the log with it and nothing else.
func TestOutlivesTheReaderOfItsLog(t *testing.T) {
	n := newNode(t)
	read, write, err := os.Pipe()
	must.Do(t, err)
	cmd := exec.Command(binary, "run", "--config", n.file())
	cmd.Stderr = write
	h := n.launch(cmd)
	write.Close()
	n.awaitVIPs(both()...)
	read.Close()
	n.apiserver.Store(http.StatusInternalServerError)
	n.awaitVIPs()
	n.apiserver.Store(http.StatusOK)
	n.awaitVIPs(both()...)
	h.stop(t)
	n.wantVIPs()
}

// An address of a VIP, added by hand on a node that does not announce it, sends the node's own clients to its dead
// server.
func TestTellsOfAddressesAddedByHand(t *testing.T) {
	n := newNode(t)
	n.apiserver.Store(http.StatusInternalServerError)
	h := n.start()
	told := func() bool {
		s, err := n.status()
		return err == nil && len(s.VIPs) == len(both()) && s.VIPs[0].Stage == speaker.Withdrawn && strings.Contains(s.VIPs[0].Error, "not put there by Herald")
	}
	n.awaitStatus("the speaker has heard the check", func(s admin.Status) bool { return len(s.VIPs) > 0 && s.VIPs[0].Decided })
	n.Add("lo", "10.99.0.10/32")
	logged := func() int { return strings.Count(h.log.String(), "not put there by Herald") }
	wait.Until(t, "status and log tell", func() bool { return told() && logged() > 0 })
	if got := logged(); got != 1 {
		t.Errorf("the log tells %d times", got)
	}
	n.wantVIPs(both()[:1]...) // the administrator's
}

func TestSecondSignalCutsTheDrainShort(t *testing.T) {
	n := newNode(t)
	n.write(strings.Replace(config, "linger: 100ms", "linger: 5m", 1))
	h := n.announcing()
	h.signal(t, syscall.SIGTERM)
	wait.Until(t, "it lingers", func() bool { return strings.Contains(h.log.String(), "vip lingering") })
	h.signal(t, syscall.SIGINT)
	h.wantExit(t, 0)
	n.wantVIPs()
}

// Without the right to bind, nothing is said to be announced, and the end waits for nothing.
func TestStopsWithoutRights(t *testing.T) {
	n := newNode(t)
	h := n.startAs("setpriv", "--bounding-set=-net_admin", binary, "run", "--config", n.file())
	wait.Until(t, "it says why", func() bool {
		return strings.Count(h.log.String(), `level=ERROR msg="vip not announced yet"`) == len(both()) && strings.Contains(h.log.String(), "Herald needs CAP_NET_ADMIN")
	})
	if s, err := n.status(); err != nil || s.VIPs[0].State != admin.Blocked || s.VIPs[0].Since.IsZero() {
		t.Errorf("status says %+v, %v; want it blocked", s.VIPs, err)
	}
	h.stop(t)
	for _, wrong := range []string{"vip announcing", "vip draining", "vip lingering", "msg=withdraw", "vip not withdrawn"} {
		if strings.Contains(h.log.String(), wrong) {
			t.Errorf("the log has %q", wrong)
		}
	}
}

// The status has the lease of a VIP on a flat layer 2 from the first moment, and the reason why there is no holder.
func TestLeaseOfAVIPThatNobodyStandsFor(t *testing.T) {
	n := newNode(t)
	n.apiserver.Store(http.StatusInternalServerError)
	n.addLink("eth0", "10.4.0.1/24")
	n.write(flatConfig)
	n.start()
	n.awaitStatus("it says why nobody holds the lease", func(s admin.Status) bool {
		if s.Election == nil || len(s.Election.Leases) != 1 || s.Election.Leases[0].Lease != "control-plane" {
			t.Fatalf("the election is %+v", s.Election)
		}
		reason := s.Election.Leases[0].Reason
		return strings.HasPrefix(reason, "no member campaigns for it") && strings.Contains(reason, "; here apiserver: ") && strings.Contains(reason, ": 500")
	})
}

// Service managers may send a SIGHUP along with the SIGTERM.
func TestReloadSignalDoesNotCutTheDrainShort(t *testing.T) {
	n := newNode(t)
	n.write(strings.Replace(config, "linger: 100ms", "linger: 1s", 1))
	h := n.announcing()
	h.signal(t, syscall.SIGTERM)
	wait.Until(t, "it drains", func() bool { return strings.Contains(h.log.String(), "vip draining") })
	h.signal(t, syscall.SIGHUP)
	h.wantExit(t, 0)
	if strings.Contains(h.log.String(), "drain cut short") || !strings.Contains(h.log.String(), "vip lingering") {
		t.Error("SIGHUP cut the drain short")
	}
}

// A drain of a node without announced VIPs ends at once.
func TestStopsAfterADrain(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	c := admin.NewClient(filepath.Join(n.dir, "herald.sock"))
	for range 2 {
		must.Do(t, c.Drain(t.Context(), "kernel upgrade", false, 0, 0))
	}
	h.stop(t)
}

// When the metrics listener breaks, herald ends, but in good order: drained, as
// otherwise the route would outlive the address.
func TestBrokenListenerEndsInADrain(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	n.breakListener(h)
	if code := h.wait(t); code != 1 || !strings.Contains(h.log.String(), "herald: metrics.listen: ") {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(h.log.String(), "vip lingering") {
		t.Error("the failure did not go through a drain")
	}
	n.wantVIPs()
}

// However many connect to the metrics listener, herald serves only some at a time.
func TestMetricsClientsAreLimited(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	const clients, limit = 300, 100
	var answered atomic.Int32
	n.in(func() error {
		for range clients {
			conn, err := net.Dial("tcp4", "127.0.0.1:9474")
			if err != nil {
				return err
			}
			t.Cleanup(func() { conn.Close() })
			if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: m1\r\n\r\n")); err != nil {
				return err
			}
			go func() {
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					answered.Add(1)
				}
			}()
		}
		return nil
	})
	wait.Until(t, "some are answered", func() bool { return answered.Load() >= 50 })
	open := must.Get[[]os.DirEntry](t)(os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.cmd.Process.Pid)))
	if len(open) > limit {
		t.Errorf("herald has %d files open", len(open))
	}
}

// breakListener shuts down h's listening TCP socket behind its back.
func (n *node) breakListener(h *herald) {
	n.t.Helper()
	process := must.Get[int](n.t)(unix.PidfdOpen(h.cmd.Process.Pid, 0))
	defer unix.Close(process)
	for fd := range 64 {
		socket, err := unix.PidfdGetfd(process, fd, 0)
		if err != nil {
			continue
		}
		name, _ := unix.Getsockname(socket)
		_, tcp := name.(*unix.SockaddrInet4)
		listens, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if tcp && err == nil && listens == 1 {
			must.Do(n.t, errors.Join(unix.Shutdown(socket, unix.SHUT_RDWR), unix.Close(socket)))
			return
		}
		unix.Close(socket)
	}
	n.t.Fatal("herald does not listen")
}

// After a crash a new process adopts the addresses, without a moment when they
// are gone, while the node is healthy, and removes them when it is not.
func TestCrashLeavesNothingForLong(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	h.kill(t)

	again := n.start()
	wait.Until(t, "the new process announces", func() bool {
		if got := n.vips(); !slices.Equal(got, both()) {
			t.Fatalf("addresses were lost over a restart: %q", got)
		}
		s, err := n.status()
		return err == nil && s.VIPs[0].Stage == "announced"
	})
	again.kill(t)
	n.apiserver.Store(http.StatusInternalServerError)
	n.start()
	n.awaitVIPs()
}

// The start removes addresses that a predecessor with another configuration left.
func TestForeignLeftoversAreSwept(t *testing.T) {
	n := newNode(t)
	h := n.announcing()
	h.kill(t)
	n.write(strings.Replace(config, `[10.99.0.10, "fd00:99::10"]`, "[10.99.0.11]", 1))
	n.start()
	n.awaitVIPs("10.99.0.11")
}

func TestReload(t *testing.T) {
	n := newNode(t)
	h := n.announcing()

	more := strings.Replace(config, `, "fd00:99::10"]`, `, "fd00:99::10", 10.99.0.12]`, 1)
	n.write(more)
	n.awaitVIPs("10.99.0.10", "10.99.0.12", "fd00:99::10")
	n.awaitGeneration(2)

	n.write(strings.Replace(config, "asn: 64500", "asn: 0", 1))
	n.awaitStatus("the error is told", func(s admin.Status) bool {
		return strings.Contains(s.Config.Error, "herald.yaml:18:")
	})
	for _, fixed := range [][2]string{
		{"asn: 64512", "asn: 64513"},
		{"DIR/herald.sock", "DIR/other.sock"},
		{"127.0.0.1:9474", "127.0.0.1:9475"},
		{"nodeName: m1", "nodeName: m2"},
	} {
		before := must.Get[admin.Status](t)(n.status())
		n.write(strings.Replace(more, fixed[0], fixed[1], 1))
		n.awaitStatus(fixed[1]+" is refused", func(s admin.Status) bool {
			return s.Config.Error != before.Config.Error && strings.Contains(s.Config.Error, "restart herald")
		})
	}
	if s, err := n.status(); err != nil || s.Config.Generation != 2 || len(s.VIPs) != 3 {
		t.Errorf("a refused file changed something: %+v, %v", s.Config, err)
	}
	if got := n.vips(); len(got) != 3 {
		t.Errorf("a refused file moved a VIP: %q", got)
	}

	n.write(config)
	n.awaitGeneration(3)
	n.awaitVIPs(both()...)
	h.signal(t, syscall.SIGHUP)
	n.awaitGeneration(4)
	if log := h.log.String(); strings.Count(log, `msg="vip announcing"`) != 3 {
		t.Errorf("a VIP that did not change was announced again:\n%s", log)
	}
}

// A file that is valid half-written, and then takes a VIP away, does nothing while the rest follows.
func TestHalfWrittenFile(t *testing.T) {
	const more = "- name: web\n  addresses: [10.99.0.11]\n  announce: bgp\n  checks: [apiserver]\n"
	vips, rest, _ := strings.Cut(strings.ReplaceAll(config, "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\n", ""), "checks:\n")
	half := "apiVersion: herald.dev/v1alpha1\nkind: Speaker\nnodeName: m1\nchecks:\n" + rest + vips
	n := newNode(t)
	n.write(half + more)
	h := n.start()
	all := []string{"10.99.0.10", "10.99.0.11", "fd00:99::10"}
	n.awaitVIPs(all...)

	n.write(half)
	n.awaitStatus("log and status say that it waits for the rest", func(s admin.Status) bool {
		return strings.Contains(s.Config.Error, "it takes away vip 10.99.0.11: applied when") && strings.Contains(h.log.String(), `takes="vip 10.99.0.11"`)
	})
	n.write(half + strings.Replace(more, "10.99.0.11", "10.99.0.11, 10.99.0.12", 1))
	n.awaitGeneration(2)
	n.awaitVIPs("10.99.0.10", "10.99.0.11", "10.99.0.12", "fd00:99::10")
	if log := h.log.String(); strings.Contains(log, "vip draining") {
		t.Errorf("a VIP went and came:\n%s", log)
	}

	n.write(half)
	h.signal(t, syscall.SIGHUP) // at once
	n.awaitGeneration(3)
	n.awaitVIPs(both()...)
}

func TestBadConfigEndsWithTwo(t *testing.T) {
	n := newNode(t)
	n.write(strings.NewReplacer("checks: [apiserver]", "checks: [apisrever]", "asn: 64512", "asn: none").Replace(config))
	h := n.start()
	h.wantExit(t, 2)
	for _, want := range []string{":8:", "apisrever", ":15:"} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("no %q in %q", want, h.log)
		}
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	must.Do(t, os.RemoveAll(path))
}

// herald runs another command of the node's herald, and returns its output and its exit code.
func (n *node) herald(args ...string) (out string, code int) {
	n.t.Helper()
	cmd := exec.Command(binary, append(args, "--socket", filepath.Join(n.dir, "herald.sock"))...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		n.t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// wantHerald wants a command to end with code, and to print lines that match, in this order.
func (n *node) wantHerald(code int, want string, args ...string) {
	n.t.Helper()
	out, got := n.herald(args...)
	if got != code || !regexp.MustCompile("(?s)^"+want+"$").MatchString(out) {
		n.t.Errorf("herald %s: exit code %d, want %d, and it prints\n%s\nwant\n%s", args, got, code, out, want)
	}
}

// systemd is told when herald is ready, that it lives, and when it stops.
func TestSystemd(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.dir, "notify.sock")
	socket := must.Get[*net.UnixConn](t)(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	h := n.start()
	await := func(want string) {
		t.Helper()
		must.Do(t, socket.SetReadDeadline(time.Now().Add(30*time.Second)))
		for b := make([]byte, 4096); ; {
			length, err := socket.Read(b)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if strings.Contains(string(b[:length]), want) {
				return
			}
		}
	}
	await("READY=1")
	await("WATCHDOG=1")
	await("0 of 2 addresses announced") // there is no router
	h.signal(t, syscall.SIGHUP)
	await("RELOADING=1")
	await("READY=1")
	h.signal(t, syscall.SIGTERM)
	await("STOPPING=1")
	h.wait(t)
}
