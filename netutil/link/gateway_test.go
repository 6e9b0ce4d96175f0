package link_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

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
