package router_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/router"
)

// lab is a router and two speakers, a and b, in network namespaces of their
// own. Speaker a has the addresses 10.9.1.1 and fd09:1::1, the router is .254
// and ::254 on the same link, toa; speaker b and link tob likewise with 2.
type lab struct {
	dir    string
	config string
	handle *netlink.Handle
	ns     netns.NsHandle
	name   string
}

func newLab(t testing.TB, config string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root for network namespaces: run with sudo")
	}
	l := &lab{dir: t.TempDir(), name: fmt.Sprintf("rt%d", os.Getpid())}
	l.config = filepath.Join(l.dir, "frr.conf")
	if err := os.WriteFile(l.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{"", "a", "b"} {
		ip(t, "netns add %s%s", l.name, side)
		t.Cleanup(func() { ip(t, "netns del %s%s", l.name, side) })
		ip(t, "-n %s%s link set lo up", l.name, side)
	}
	for i, side := range []string{"a", "b"} {
		n := i + 1
		ip(t, "-n %s link add name to%s type veth peer name up netns %s%s", l.name, side, l.name, side)
		for _, end := range []struct{ ns, link, host string }{{l.name, "to" + side, "254"}, {l.name + side, "up", "1"}} {
			ip(t, "-n %s addr add 10.9.%d.%s/24 dev %s", end.ns, n, end.host, end.link)
			ip(t, "-n %s addr add fd09:%d::%s/64 dev %s nodad", end.ns, n, end.host, end.link)
			// So that the link-local addresses can be used at once.
			ip(t, "-n %s link set dev %s addrgenmode none up", end.ns, end.link)
			ip(t, "-n %s addr add fe80::%s/64 dev %s nodad", end.ns, end.host, end.link)
		}
	}
	var err error
	if l.ns, err = netns.GetFromName(l.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.ns.Close() })
	if l.handle, err = netlink.NewHandleAt(l.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.handle.Close)
	return l
}

// ip runs the ip command and returns what it prints.
func ip(t testing.TB, format string, args ...any) string {
	t.Helper()
	command := strings.Fields(fmt.Sprintf(format, args...))
	out, err := exec.Command("ip", command...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// run starts this test binary in a role in the namespace of a side ("" is the
// router's). The process is killed at the end of the test, if it still runs.
func (l *lab) run(t testing.TB, side, role string, prepare func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", l.name+side, "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[len(cmd.Args)-1] = exe
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stderr = t.Output()
	if prepare != nil {
		prepare(cmd)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, cmd, syscall.SIGKILL) })
	return cmd
}

// kill ends a process with a signal and waits for it.
func kill(t testing.TB, cmd *exec.Cmd, sig syscall.Signal) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Errorf("%v %v: %v", sig, cmd, err)
	}
	err := cmd.Wait()
	if sig != syscall.SIGKILL && err != nil {
		t.Errorf("%v: %v, want a clean end after %v", cmd, err, sig)
	}
}

func (l *lab) router(t testing.TB) *exec.Cmd {
	t.Helper()
	return l.run(t, "", "router "+l.config+" "+l.socket(), nil)
}

func (l *lab) socket() string { return filepath.Join(l.dir, "router.sock") }

// speaker starts a speaker on a side, with peer's address and a password.
func (l *lab) speaker(t testing.TB, side, asn, peer, password string) (*speaker, *exec.Cmd) {
	t.Helper()
	s := new(speaker)
	cmd := l.run(t, side, fmt.Sprintf("speaker %s 10.9.9.%d %s 64500 %s", asn, side[0], peer, password), func(cmd *exec.Cmd) {
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		s.in, s.out = in, bufio.NewScanner(out)
	})
	return s, cmd
}

// route returns the next hops of prefix in the kernel, sorted, with the link for link-local ones.
func (l *lab) route(t testing.TB, prefix string) []string {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	family := netlink.FAMILY_V6
	if dst.IP.To4() != nil {
		family = netlink.FAMILY_V4
	}
	found, err := l.handle.RouteListFiltered(family, &netlink.Route{Dst: dst, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	var hops []string
	for _, r := range found {
		if r.Protocol != unix.RTPROT_BGP {
			t.Errorf("route %v is of protocol %v, want bgp", r, r.Protocol)
		}
		infos := r.MultiPath
		if len(infos) == 0 {
			infos = []*netlink.NexthopInfo{{Gw: r.Gw, LinkIndex: r.LinkIndex, Flags: r.Flags}}
		}
		for _, info := range infos {
			hop := info.Gw.String()
			if info.Flags&unix.RTNH_F_DEAD != 0 {
				hop += " dead"
			}
			if info.Gw.IsLinkLocalUnicast() {
				link, err := l.handle.LinkByIndex(info.LinkIndex)
				if err != nil {
					t.Fatal(err)
				}
				hop += "%" + link.Attrs().Name
			}
			hops = append(hops, hop)
		}
	}
	slices.Sort(hops)
	return hops
}

// resilientGroup returns the next hops in the buckets of the group that the route to
// prefix leads to, sorted; none if the group is not resilient.
func (l *lab) resilientGroup(t testing.TB, prefix string) string {
	t.Helper()
	route := strings.Fields(ip(t, "-n %s route show table all %s", l.name, prefix))
	i := slices.Index(route, "nhid")
	if i < 0 {
		t.Fatalf("the route to %s has no group: %q", prefix, route)
	}
	var hops []string
	for line := range strings.Lines(ip(t, "-n %s nexthop bucket show id %s", l.name, route[i+1])) {
		bucket := strings.Fields(line)
		hop := strings.Fields(ip(t, "-n %s nexthop show id %s", l.name, bucket[slices.Index(bucket, "nhid")+1]))
		if via := hop[slices.Index(hop, "via")+1]; !slices.Contains(hops, via) {
			hops = append(hops, via)
		}
	}
	slices.Sort(hops)
	return strings.Join(hops, " ")
}

// eventually waits until prefix has exactly the next hops want in the kernel.
func (l *lab) eventually(t testing.TB, prefix string, want ...string) {
	t.Helper()
	var got []string
	poll(t, func() bool {
		got = l.route(t, prefix)
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("route %s has next hops %v, want %v", prefix, got, want) })
}

// poll waits for a condition; if it does not come true, problem says what is wrong.
func poll(t testing.TB, condition func() bool, problem func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(problem())
		}
	}
}

// state waits until the router's state, as watched on its socket, fulfils a condition.
func (l *lab) state(t testing.TB, what string, condition func(*router.State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last *router.State
	for ctx.Err() == nil {
		for s, err := range router.Watch(ctx, l.socket()) {
			if err != nil {
				break // not listening yet
			}
			if last = s; condition(s) {
				return
			}
		}
	}
	t.Fatalf("the router's state never had %s; at last it was %+v", what, last)
}

// sessions waits until that many sessions are up.
func (l *lab) sessions(t testing.TB, want int) {
	t.Helper()
	l.state(t, fmt.Sprintf("%d sessions up", want), func(s *router.State) bool {
		up := 0
		for _, session := range s.Sessions {
			if session.Up {
				up++
			}
		}
		return up == want
	})
}

func stateRoute(s *router.State, prefix string) *router.Route {
	i := slices.IndexFunc(s.Routes, func(r router.Route) bool { return r.Prefix == netip.MustParsePrefix(prefix) })
	if i < 0 {
		return nil
	}
	return &s.Routes[i]
}
