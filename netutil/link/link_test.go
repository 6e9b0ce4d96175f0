package link_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateways returns the host's gateways of both families.
func gateways(h *nettest.Host) string {
	h.T.Helper()
	var out []string
	h.In(func() {
		for _, ipv6 := range []bool{false, true} {
			addrs, err := link.Gateways(ipv6)
			if err != nil {
				h.T.Error(err)
			}
			for _, a := range addrs {
				out = append(out, a.String())
			}
		}
	})
	return strings.Join(out, " ")
}

// Gateways returns the gateways, and WatchGateways reports each change.
func TestGateways(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	h.AddVeth("veth2", "veth3")
	h.Add("veth0", "10.0.1.1/24")
	h.Add("veth2", "10.0.2.1/24")
	h.Add("veth0", "fd00:1::1/64")
	changes := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go h.In(func() {
		done <- link.WatchGateways(ctx, new(rtnetlink.Watcher), time.Hour, func() { changes <- struct{}{} })
	})
	defer func() {
		cancel()
		if err := nettest.Receive(t, done); err != nil {
			t.Error(err)
		}
	}()
	nettest.Receive(t, changes) // the first call

	index := func(name string) int { return h.Link(name).Attrs().Index }
	routeVia := func(via, name string, metric int) *netlink.Route {
		return &netlink.Route{LinkIndex: index(name), Gw: net.ParseIP(via), Priority: metric}
	}
	anywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	both := &netlink.Route{Dst: anywhere, Priority: 10, MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: index("veth2"), Gw: net.ParseIP("10.0.2.254")}, {LinkIndex: index("veth0"), Gw: net.ParseIP("10.0.1.254")},
	}}
	for _, step := range []struct {
		name string
		make func() error
		want string
	}{
		{"one gateway", func() error { return h.NL.RouteAdd(routeVia("10.0.1.254", "veth0", 100)) }, "10.0.1.254"},
		{"a higher metric", func() error { return h.NL.RouteAdd(routeVia("10.0.2.254", "veth2", 200)) }, "10.0.1.254"},
		{"another table", func() error {
			r := routeVia("10.0.2.253", "veth2", 0)
			r.Table = 100
			return h.NL.RouteAdd(r)
		}, "10.0.1.254"},
		{"two paths", func() error { return h.NL.RouteAdd(both) }, "10.0.1.254 10.0.2.254"},
		{"IPv6", func() error { return h.NL.RouteAdd(routeVia("fd00:1::254", "veth0", 1024)) }, "10.0.1.254 10.0.2.254 fd00:1::254"},
		{"link-local gateway with the same metric", func() error { return h.NL.RouteAppend(routeVia("fe80::254", "veth2", 1024)) },
			"10.0.1.254 10.0.2.254 fd00:1::254 fe80::254%veth2"},
		{"unreachable route", func() error {
			return h.NL.RouteAdd(&netlink.Route{Dst: anywhere, Type: unix.RTN_UNREACHABLE, Priority: 5})
		}, "10.0.1.254 10.0.2.254 fd00:1::254 fe80::254%veth2"},
		{"link of one gateway down", func() error { return h.NL.LinkSetDown(h.Link("veth2")) }, "10.0.1.254 fd00:1::254"},
		{"route with two paths removed", func() error { return h.NL.RouteDel(both) }, "10.0.1.254 fd00:1::254"},
		{"address that the route needs removed", func() error { h.Remove("veth0", "10.0.1.1/24"); return nil }, "fd00:1::254"},
		{"IPv6 gateway of an IPv4 route", func() error {
			via := &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fe80::254")}
			return h.NL.RouteAdd(&netlink.Route{Dst: anywhere, LinkIndex: index("veth0"), Via: via})
		}, "fe80::254%veth0 fd00:1::254"},
		{"link of all gateways down", func() error { return h.NL.LinkSetDown(h.Link("veth0")) }, ""},
	} {
		before := gateways(h)
		for len(changes) > 0 {
			<-changes
		}
		h.Must(step.make())
		wait.Until(t, step.name, func() bool { return gateways(h) == step.want })
		if before != step.want {
			nettest.Receive(t, changes)
		}
	}
}

// Watchers do not report routes other than default routes.
func TestOtherRoutesAreNotReported(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	h.Add("veth0", "10.0.1.1/24")
	w := &rtnetlink.Watcher{NetNS: int(h.NS)}
	sub, err := w.Subscribe()
	h.Must(err)
	defer sub.Close()
	h.Route("10.9.0.0/16", "veth0", "10.0.1.254")
	h.Route("0.0.0.0/0", "veth0", "10.0.1.254")
	<-sub.Ready()
	events, err := sub.Take()
	h.Must(err)
	if want := []rtnetlink.Event{{}}; !slices.Equal(events, want) {
		t.Errorf("events %+v, want only the default route", events)
	}
}

// After AwaitLocal the kernel accepts packets for an address that it acknowledged before.
func TestAwaitLocal(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "far")
	h.In(func() {
		for i := range 50 {
			addr := netip.MustParseAddr(fmt.Sprintf("fd00::%x", 100+i))
			vip := nettest.Parse(t, addr.String()+"/128")
			vip.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
			if err := h.NL.AddrAdd(h.Link("eth0"), vip); err != nil {
				t.Error(err)
				return
			}
			// The kernel's worker may wait for a CPU longer than AwaitLocal waits for it.
			wait.Until(t, "the address is local", func() bool { return link.AwaitLocal(addr) == nil })
			routes, err := h.NL.RouteGet(addr.AsSlice())
			if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("%s is not local after AwaitLocal: %v, error %v", addr, routes, err)
			}
		}
		if err := link.AwaitLocal(netip.MustParseAddr("fd00::1")); err == nil {
			t.Error("AwaitLocal of a foreign address: no error")
		}
		if err := link.AwaitLocal(netip.MustParseAddr("192.0.2.1")); err != nil {
			t.Errorf("AwaitLocal of an IPv4 address: %v", err)
		}
	})
}

// Set works where /proc/sys is read-only, as in a pod.
func TestSetting(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	const conf = "/proc/sys/net/ipv4/conf/"
	expect := func(setting, want string) {
		t.Helper()
		if got, err := os.ReadFile(conf + setting); err != nil || string(got) != want+"\n" {
			t.Errorf("%s is %q, %v; want %s", setting, got, err, want)
		}
	}
	h.In(func() {
		must.Do(t, netns.ProtectSettings())
		if err := os.WriteFile(conf+"eth0/route_localnet", []byte("1"), 0); !errors.Is(err, unix.EROFS) {
			t.Fatalf("/proc/sys can be written: %v", err)
		}
		for _, value := range []uint32{1, 0} {
			text := string('0' + rune(value))
			must.Do(t, errors.Join(link.RouteLocalnet.Set("eth0", value), link.Forwarding.Set("eth1", value)))
			expect("eth0/route_localnet", text)
			expect("eth1/forwarding", text)
			expect("eth1/route_localnet", "0")
		}
		if err := link.RouteLocalnet.Set("eth9", 1); !errors.Is(err, unix.ENODEV) {
			t.Errorf("Set on a missing link: error %v, want ENODEV", err)
		}
	})
}

func TestReadSurvey(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	h.Add("eth0", "10.0.0.1/24")
	h.Add("lo", "10.99.0.10/32")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.Must(h.NL.NeighSet(&netlink.Neigh{
		LinkIndex: h.Link("eth0").Attrs().Index, IP: net.IPv4(10, 0, 0, 9), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	}))
	var s link.Survey
	var err error
	h.In(func() { s, err = link.ReadSurvey() })
	h.Must(err)
	if l := s.Links["eth0"]; !l.Up || !slices.Contains(l.Prefixes, netip.MustParsePrefix("10.0.0.0/24")) {
		t.Errorf("eth0 is %+v", l)
	}
	if link, ok := s.Has(netip.MustParseAddr("10.99.0.10")); !ok || link != "lo" {
		t.Errorf("10.99.0.10 is on %q, %t", link, ok)
	}
	if _, ok := s.Has(netip.MustParseAddr("10.99.0.11")); ok {
		t.Error("10.99.0.11 is on a link")
	}
	for _, a := range s.Addresses {
		if a.Herald {
			t.Errorf("%+v counts as Herald's", a)
		}
	}
	if link, err := s.For(netip.MustParseAddr("10.0.0.100")); err != nil || link != "eth0" {
		t.Errorf("10.0.0.100 belongs to %q, %v", link, err)
	}
	if len(s.Neighbours) != 1 || s.Neighbours[0].MAC.String() != mac.String() {
		t.Errorf("neighbours are %+v", s.Neighbours)
	}
}

// watched records the reports of Watch.
type watched struct {
	mu    sync.Mutex
	links map[string]link.Link
	downs map[string]int // by link: number of reports that it went down
}

func (w *watched) changed(links map[string]link.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, prev := range w.links {
		if now, ok := links[name]; ok && prev.Up && !now.Up {
			w.downs[name]++
		}
	}
	w.links = links
}

func (w *watched) link(name string) link.Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links[name]
}

// watchLinks runs Watch in the host until the test ends.
func watchLinks(h *nettest.Host, watcher *rtnetlink.Watcher, changed func(*watched, map[string]link.Link)) *watched {
	h.T.Helper()
	w := &watched{downs: make(map[string]int)}
	ctx, cancel := context.WithCancel(h.T.Context())
	done := make(chan error, 1)
	go h.In(func() {
		done <- link.Watch(ctx, watcher, func(links map[string]link.Link) { changed(w, links) })
	})
	h.T.Cleanup(func() {
		cancel()
		if err := nettest.Receive(h.T, done); err != nil {
			h.T.Errorf("Watch: %v", err)
		}
	})
	return w
}

func TestWatchLinks(t *testing.T) {
	h := nettest.NewHost(t)
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	wait.Until(t, "lo is known", func() bool { return w.link("lo").Index == 1 })

	h.AddVeth("veth0", "veth1")
	wait.Until(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	attrs := h.Link("veth0").Attrs()
	if got := w.link("veth0"); got.Kind != "veth" || got.MTU != 1500 || !slices.Equal(got.MAC, attrs.HardwareAddr) || got.Index != attrs.Index {
		t.Errorf("veth0 is %+v", got)
	}

	h.SetDown("veth1")
	wait.Until(t, "veth0 has no carrier", func() bool { return !w.link("veth0").Up })
	h.SetUp("veth1")
	wait.Until(t, "veth0 has a carrier", func() bool { return w.link("veth0").Up })
	h.SetDown("veth0")
	wait.Until(t, "veth0 is down", func() bool { return !w.link("veth0").Up })
	h.SetUp("veth0")
	wait.Until(t, "veth0 is up again", func() bool { return w.link("veth0").Up })

	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.Must(h.NL.LinkSetHardwareAddr(h.Link("veth0"), mac))
	h.Must(h.NL.LinkSetMTU(h.Link("veth0"), 1400))
	h.Add("veth0", "10.0.0.1/24")
	h.Add("veth0", "fd00::1/64")
	subnets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	wait.Until(t, "MAC, MTU and subnets are reported", func() bool {
		got := w.link("veth0")
		return slices.Equal(got.MAC, mac) && got.MTU == 1400 && slices.Equal(got.Prefixes, subnets)
	})
	h.In(func() {
		for _, addr := range []string{"10.0.0.99", "fd00::99"} {
			if got, err := link.Finder()(netip.MustParseAddr(addr)); got != "veth0" || err != nil {
				t.Errorf("the link for %s is %q, error %v", addr, got, err)
			}
		}
	})

	h.Must(h.NL.LinkDel(h.Link("veth0")))
	wait.Until(t, "veth0 is gone", func() bool { return w.link("veth0").Index == 0 })
	h.AddVeth("veth0", "veth1")
	wait.Until(t, "another veth0", func() bool { return w.link("veth0").Index > attrs.Index && w.link("veth0").Up })
}

// A bridge passes packets when one of its ports does.
func TestWatchBridge(t *testing.T) {
	h := nettest.NewHost(t)
	h.Must(h.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	h.SetUp("br0")
	h.AddVeth("veth0", "veth1")
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	h.Must(h.NL.LinkSetMaster(h.Link("veth0"), h.Link("br0")))
	wait.Until(t, "the bridge is up", func() bool {
		return w.link("br0").Kind == "bridge" && w.link("br0").Up && w.link("veth0").PortOf == "bridge"
	})
	h.Must(h.NL.LinkSetNoMaster(h.Link("veth0")))
	wait.Until(t, "the bridge is down, its port up", func() bool { return !w.link("br0").Up && w.link("veth0").Up })
}

// Watch reads everything again after the kernel has lost changes, here for want of a receive buffer.
func TestWatchLinksLosesChanges(t *testing.T) {
	h := nettest.NewHost(t)
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	w := watchLinks(h, &rtnetlink.Watcher{Buffer: 1}, func(w *watched, links map[string]link.Link) {
		w.changed(links)
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	})
	nettest.Receive(t, entered)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		h.Must(h.NL.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "1"}))
	}
	close(release)
	wait.Until(t, "all links are known", func() bool { return w.link("h").Index != 0 && w.link("h1").Index != 0 })
}

// Watch reports each link that goes down, even if it is up again at once.
func TestWatchLinksReportsEachFlap(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("veth0", "veth1")
	w := watchLinks(h, new(rtnetlink.Watcher), (*watched).changed)
	wait.Until(t, "veth0 is up", func() bool { return w.link("veth0").Up })
	const flaps = 5
	for range flaps {
		h.SetDown("veth0")
		h.SetUp("veth0")
	}
	wait.Until(t, "each flap is reported", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.downs["veth0"] == flaps && w.links["veth0"].Up
	})
}
