package link

import (
	"net"
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
