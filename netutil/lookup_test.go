package netutil

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRouterID(t *testing.T) {
	eth1 := link{index: 3, name: "eth1"}
	onLo, onEth0, onEth1 := permanent(lo, "10.255.0.1/32"), permanent(eth0, "10.0.0.1/24"), permanent(eth1, "10.0.1.1/24")
	for _, tt := range []struct {
		name   string
		addrs  []address
		except []netip.Addr
		want   string // address, or part of the error
	}{
		{"first link", []address{onEth1, onEth0}, nil, "10.0.0.1"},
		{"first on a link", []address{onEth0, permanent(eth0, "10.0.0.0/24")}, nil, "10.0.0.1"},
		{"lo last", []address{onLo, onEth1}, nil, "10.0.1.1"},
		{"lo at last", []address{onLo}, nil, "10.255.0.1"},
		{"no excepted one", []address{onEth0, onEth1}, []netip.Addr{onEth0.ip}, "10.0.1.1"},
		{"no VIP on lo", []address{vip(lo, vip4, defaultLifetime, defaultMark)}, nil, "set bgp.routerID"},
		{"no VIP elsewhere", []address{vip(eth0, vip4, defaultLifetime, defaultMark), onEth1}, nil, "10.0.1.1"},
		{"no loopback address", nil, nil, "set bgp.routerID"},
		{"no link-local address", []address{permanent(eth0, "169.254.1.1/16"), onEth1}, nil, "10.0.1.1"},
		{"no address of link scope", []address{with(onEth0, func(a *address) { a.scope = unix.RT_SCOPE_LINK }), onEth1}, nil, "10.0.1.1"},
		{"no IPv6", []address{permanent(eth0, "fd00::1/64")}, nil, "set bgp.routerID"},
	} {
		got, err := routerID([]link{eth1, eth0, lo}, append(tt.addrs, marked), tt.except)
		check(t, tt.name, got, err, tt.want)
	}
}

func TestGlobalAddr6(t *testing.T) {
	eth1 := link{index: 3, name: "eth1"}
	v4, ll := permanent(eth0, "10.0.0.1/24"), with(permanent(eth0, "fe80::1/64"), func(a *address) { a.scope = unix.RT_SCOPE_LINK })
	first, second := permanent(eth0, "fd00::1/64"), permanent(eth0, "fd00::2/64")
	flagged := func(flag uint32) address { return with(first, func(a *address) { a.flags |= flag }) }
	for _, tt := range []struct {
		name  string
		addrs []address
		local string
		want  string // address, or part of the error
	}{
		{"of an IPv4 session", []address{v4, ll, first}, "10.0.0.1", "fd00::1"},
		{"of an IPv4 session, address mapped", []address{v4, ll, first}, "::ffff:10.0.0.1", "fd00::1"},
		{"of a link-local session", []address{v4, ll, first}, "fe80::1", "fd00::1"},
		{"of an IPv6 session", []address{v4, ll, first, second}, "fd00::2", "fd00::2"},
		{"the lowest, in whatever order", []address{v4, second, first}, "10.0.0.1", "fd00::1"},
		{"of the same link", []address{v4, first, permanent(eth1, "fd00:1::1/64")}, "10.0.0.1", "fd00::1"},
		{"of the link that has one, if several carry the address", []address{v4, permanent(eth1, "10.0.0.1/32"), permanent(eth1, "fd00:1::1/64")}, "10.0.0.1", "fd00:1::1"},
		{"of the zone's link", []address{ll, first, with(ll, func(a *address) { a.link = 3 }), permanent(eth1, "fd00:1::1/64")}, "fe80::1%eth1", "fd00:1::1"},
		{"no VIP", []address{v4, vip(eth0, vip6, defaultLifetime, defaultMark)}, "10.0.0.1", "eth0, which has 10.0.0.1, has no global IPv6 address"},
		{"no temporary one", []address{v4, flagged(unix.IFA_F_TEMPORARY), second}, "10.0.0.1", "fd00::2"},
		{"no tentative one", []address{v4, flagged(unix.IFA_F_TENTATIVE), second}, "10.0.0.1", "fd00::2"},
		{"no duplicate", []address{v4, flagged(unix.IFA_F_DADFAILED), second}, "10.0.0.1", "fd00::2"},
		{"only link-local", []address{v4, ll}, "10.0.0.1", "set the peer's nextHop6"},
		{"not here", []address{v4, first}, "10.0.0.2", "no link has 10.0.0.2"},
		{"not in the zone", []address{ll, first}, "fe80::1%eth1", "no link has fe80::1"},
	} {
		got, err := globalAddr6([]link{eth1, eth0, lo}, slices.Concat(tt.addrs, []address{marked}), netip.MustParseAddr(tt.local))
		check(t, tt.name, got, err, tt.want)
	}
}

func check(t *testing.T, name string, got netip.Addr, err error, want string) {
	t.Helper()
	if addr, parseErr := netip.ParseAddr(want); parseErr == nil {
		if err != nil || got != addr {
			t.Errorf("%s: %v, error %v; want %s", name, got, err, want)
		}
	} else if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, error %v; want %q", name, got, err, want)
	}
}
