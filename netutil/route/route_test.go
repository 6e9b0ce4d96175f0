package route_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/route"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// keeperEnv makes the test binary a process that keeps routes.
const keeperEnv = "HERALD_TEST_KEEP_ROUTES"

func TestMain(m *testing.M) {
	if os.Getenv(keeperEnv) != "" {
		if err := keep(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// keep announces or withdraws vip4 and vip6 by the commands in stdin, one a line, and answers each.
func keep() error {
	k := route.New()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var err error
		switch lines.Text() {
		case "announce":
			err = errors.Join(k.Bind("", vip4), k.Bind("", vip6), k.Announce(host(vip4), host(vip6)))
		case "withdraw":
			err = k.Withdraw(host(vip4).Prefix, host(vip6).Prefix)
		case "be refused":
			if k.Announce(host(vip4.Next())) == nil {
				err = errors.New("no foreign route")
			}
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return k.Close()
}

const table = 201

var (
	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

func host(addr netip.Addr) route.Route {
	return route.Route{Prefix: netip.PrefixFrom(addr, addr.BitLen()), Table: table, Metric: 100}
}

// routes returns the routes of the table, as METRIC PREFIX.
func routes(h *nettest.Host) (out []string) {
	h.T.Helper()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := h.NL.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		h.Must(err)
		for _, r := range list {
			out = append(out, strconv.Itoa(r.Priority)+" "+r.Dst.String())
		}
	}
	slices.Sort(out)
	return out
}

func want(h *nettest.Host, routesWanted ...string) {
	h.T.Helper()
	if got := routes(h); !slices.Equal(got, routesWanted) {
		h.T.Errorf("the table has %q, want %q", got, routesWanted)
	}
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	k := route.New()
	announce := func(routes ...route.Route) (err error) {
		h.In(func() { err = k.Announce(routes...) })
		return err
	}
	withdraw := func(addrs ...netip.Addr) {
		h.In(func() {
			for _, a := range addrs {
				h.Must(k.Withdraw(host(a).Prefix))
			}
		})
	}
	h.Must(announce())
	if _, err := h.NL.LinkByName(route.Device); err == nil {
		t.Error("the link exists without routes")
	}
	h.Must(announce(host(vip4), host(vip6)))
	h.Must(announce(host(vip4), host(vip6)))
	want(h, "100 10.99.0.10/32", "100 fd00:99::10/128")

	worst := host(vip4)
	worst.Metric = route.Worst
	h.Must(announce(worst))
	want(h, "100 fd00:99::10/128", "16777215 10.99.0.10/32")
	h.Must(announce(host(vip4)))

	// Announce puts removed routes back, and leaves foreign routes alone.
	h.Must(h.NL.RouteDel(&netlink.Route{Dst: network(vip4), Table: table, Priority: 100}))
	h.Must(announce(host(vip4)))
	other := host(vip4.Next())
	h.Must(h.NL.RouteAdd(&netlink.Route{Dst: network(vip4.Next()), Table: table, Priority: 100, LinkIndex: h.Link("lo").Attrs().Index}))
	if err := announce(other); err == nil || err.Error() != "route to 10.99.0.11/32 in table 201: another program has a route with this metric: remove it or choose another metric" {
		t.Errorf("foreign route: error %v", err)
	}
	withdraw(vip4.Next(), vip4, vip6)
	want(h, "100 10.99.0.11/32")

	// A link that is down is made again.
	h.Must(announce(host(vip4)))
	h.SetDown(route.Device)
	if err := announce(host(vip4)); err == nil {
		t.Error("Announce with the link down: no error")
	}
	h.Must(announce(host(vip4)))
	want(h, "100 10.99.0.10/32", "100 10.99.0.11/32")
	h.In(func() { h.Must(k.Close()) })
	want(h, "100 10.99.0.11/32")
}

// answers reports whether the host accepts a connection to an address.
func answers(h *nettest.Host, addr netip.Addr) (yes bool) {
	h.T.Helper()
	h.In(func() {
		l, err := net.Listen("tcp", ":0")
		h.Must(err)
		defer l.Close()
		c, err := net.Dial("tcp", netip.AddrPortFrom(addr, uint16(l.Addr().(*net.TCPAddr).Port)).String())
		if yes = err == nil; yes {
			c.Close()
		}
	})
	return yes
}

// The host answers for a bound address until Unbind, or until the link is gone.
func TestBind(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	k := route.New()
	bind := func(addr netip.Addr) (err error) {
		h.In(func() { err = k.Try(route.Device, addr) })
		return err
	}
	for _, addr := range []netip.Addr{vip4, vip6} {
		h.Must(bind(addr))
		h.Must(bind(addr))
		if !answers(h, addr) {
			t.Errorf("the host does not answer for %s", addr)
		}
	}
	// An address may still be on a link, after a change of the VIP from BGP, and be removed there later.
	h.Add("lo", "10.99.0.11/32")
	h.Must(bind(vip4.Next()))
	h.Remove("lo", "10.99.0.11/32")
	if !answers(h, vip4.Next()) {
		t.Error("the host does not answer for the address that was on lo")
	}
	h.In(func() { h.Must(k.Unbind(route.Device, vip4)) })
	if answers(h, vip4) || !answers(h, vip6) || !answers(h, vip4.Next()) {
		t.Error("Unbind removed the wrong address")
	}
	h.Must(h.NL.LinkDel(h.Link(route.Device)))
	if err := bind(vip6); err == nil {
		t.Error("bind with the link deleted: no error")
	}
	h.Must(bind(vip6))
	if !answers(h, vip6) {
		t.Errorf("the host does not answer for %s after binding again", vip6)
	}
	h.In(func() { h.Must(k.Close()) })
	if answers(h, vip6) {
		t.Errorf("the host answers for %s after Close", vip6)
	}
}

func TestOneKeeperAtATime(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	first, second := route.New(), route.New()
	h.In(func() {
		h.Must(first.Announce(host(vip4)))
		if err := second.Announce(host(vip6)); err == nil {
			t.Error("a second keeper shares the link")
		}
		h.Must(second.Close())
		h.Must(first.Close())
		h.Must(second.Announce(host(vip6)))
		h.Must(second.Close())
	})
}

// The kernel does not kill a process after its last route is withdrawn, or if its only route failed.
func TestNoRoutesNoDeadline(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	k := startKeeper(h, t)
	h.Must(h.NL.RouteAdd(&netlink.Route{Dst: network(vip4.Next()), Table: table, Priority: 100, LinkIndex: h.Link("lo").Attrs().Index}))
	k.do(t, "withdraw")
	k.do(t, "be refused")
	select {
	case <-time.After(route.Patience + time.Second):
	case _, alive := <-k.answers:
		t.Errorf("unexpected answer, or process ended: %t", !alive)
	}
}

// Announce fails in the first process of a PID namespace: the kernel would not kill it.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	exe, err := os.Executable()
	h.Must(err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), keeperEnv+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	cmd.Stdin = strings.NewReader("announce\n")
	h.In(func() {
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "shareProcessNamespace: true") {
			t.Errorf("error %v, output %s; want shareProcessNamespace: true", err, out)
		}
	})
}

// keeper is a process that runs keep.
type keeper struct {
	cmd      *exec.Cmd
	commands io.Writer
	answers  chan string
}

// do sends a command and waits for the answer.
func (k *keeper) do(t *testing.T, command string) {
	t.Helper()
	must.Get[int](t)(fmt.Fprintln(k.commands, command))
	nettest.Receive(t, k.answers)
}

func startKeeper(h *nettest.Host, t *testing.T) *keeper {
	t.Helper()
	exe, err := os.Executable()
	h.Must(err)
	k := &keeper{cmd: exec.Command(exe), answers: make(chan string)}
	k.cmd.Env = append(os.Environ(), keeperEnv+"=1")
	k.cmd.Stderr = os.Stderr
	stdin, err := k.cmd.StdinPipe()
	h.Must(err)
	stdout, err := k.cmd.StdoutPipe()
	h.Must(err)
	k.commands = stdin
	h.In(func() { h.Must(k.cmd.Start()) })
	go func() {
		defer close(k.answers)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			k.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		_ = k.cmd.Process.Kill()
		for range k.answers {
		}
		_ = k.cmd.Wait()
	})
	k.do(t, "announce")
	want(h, "100 10.99.0.10/32", "100 fd00:99::10/128")
	return k
}

// The kernel removes the routes of a killed process.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	h := nettest.NewHost(t)
	k := startKeeper(h, t)
	h.Must(k.cmd.Process.Kill())
	wait.Until(t, "the routes are gone", func() bool { return len(routes(h)) == 0 })
}

// The kernel kills a process that is stopped, or that stops announcing.
func TestFrozenKeeper(t *testing.T) {
	for name, freeze := range map[string]unix.Signal{"stopped": unix.SIGSTOP, "not announcing": unix.SIGCONT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := nettest.NewHost(t)
			k := startKeeper(h, t)
			h.Must(k.cmd.Process.Signal(freeze))
			began := time.Now()
			wait.Until(t, "the routes are gone", func() bool { return len(routes(h)) == 0 })
			if took := time.Since(began); took < route.Patience/2 {
				t.Errorf("routes gone after %v, want at least %v", took, route.Patience/2)
			}
		})
	}
}

func network(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}
