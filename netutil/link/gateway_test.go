package link

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestNextHops(t *testing.T) {
	route := func(metric int, hops ...string) netlink.Route {
		r := netlink.Route{Priority: metric, Gw: net.ParseIP(hops[0])}
		if len(hops) > 1 {
			r.Gw = nil
			for _, h := range hops {
				r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{Gw: net.ParseIP(h)})
			}
		}
		return r
	}
	dead, via := route(0, "10.0.0.9"), route(0, "")
	dead.Flags = unix.RTNH_F_DEAD
	via.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("fe80::1")}
	for _, tt := range []struct {
		name   string
		routes []netlink.Route
		want   string
	}{
		{name: "no routes"},
		{name: "lowest metric last", routes: []netlink.Route{route(20, "10.0.0.1"), route(10, "10.0.0.2")}, want: "10.0.0.2"},
		{name: "lowest metric first", routes: []netlink.Route{route(10, "10.0.0.1"), route(20, "10.0.0.2")}, want: "10.0.0.1"},
		{name: "several paths, and another route with the metric", routes: []netlink.Route{route(0, "10.0.0.3", "10.0.0.1"), route(0, "10.0.0.2")}, want: "10.0.0.3 10.0.0.1 10.0.0.2"},
		{name: "route with the lowest metric has no gateway", routes: []netlink.Route{route(5, ""), route(10, "10.0.0.1")}, want: "10.0.0.1"},
		{name: "next hop with the lowest metric is dead", routes: []netlink.Route{dead, route(10, "10.0.0.1")}, want: "10.0.0.1"},
		{name: "gateway of the other family", routes: []netlink.Route{via}, want: "fe80::1"},
	} {
		var got []string
		for _, h := range nextHops(tt.routes) {
			addr, _ := h.gateway()
			got = append(got, addr.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %s", tt.name, got, tt.want)
		}
	}
}

func TestResolved(t *testing.T) {
	addr, mac := netip.MustParseAddr("10.0.0.2"), net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, test := range []struct {
		name  string
		state int
		mac   net.HardwareAddr
		known bool
	}{
		{"reachable", unix.NUD_REACHABLE, mac, true},
		{"stale", unix.NUD_STALE, mac, true},
		{"permanent", unix.NUD_PERMANENT, mac, true},
		{"incomplete", unix.NUD_INCOMPLETE, nil, false},
		{"failed", unix.NUD_FAILED, nil, false},
		{"failed after an answer", unix.NUD_FAILED, mac, false},
		{"multicast", unix.NUD_NOARP, mac, false},
	} {
		got := resolved([]netlink.Neigh{{IP: addr.AsSlice(), State: test.state, HardwareAddr: test.mac}})
		if known := len(got) == 1; known != test.known || known && (got[0].Addr != addr || got[0].MAC.String() != mac.String()) {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}
