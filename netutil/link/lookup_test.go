package link

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

func TestRouterID(t *testing.T) {
	eth1 := Link{Index: 3, Name: "eth1"}
	onLo, onEth0, onEth1 := permanent(lo, "10.255.0.1/32"), permanent(eth0, "10.0.0.1/24"), permanent(eth1, "10.0.1.1/24")
	for _, tt := range []struct {
		name   string
		addrs  []rtnetlink.Address
		except []netip.Addr
		want   string
	}{
		{"first link", []rtnetlink.Address{onEth1, onEth0}, nil, "10.0.0.1"},
		{"first on a link", []rtnetlink.Address{onEth0, permanent(eth0, "10.0.0.0/24")}, nil, "10.0.0.1"},
		{"lo last", []rtnetlink.Address{onLo, onEth1}, nil, "10.0.1.1"},
		{"only lo", []rtnetlink.Address{onLo}, nil, "10.255.0.1"},
		{"not in except", []rtnetlink.Address{onEth0, onEth1}, []netip.Addr{onEth0.IP}, "10.0.1.1"},
		{"no VIP on lo", []rtnetlink.Address{vip(lo, vip4)}, nil, "77.13.242.201"},
		{"no VIP elsewhere", []rtnetlink.Address{vip(eth0, vip4), onEth1}, nil, "10.0.1.1"},
		{"no loopback address", nil, nil, "77.13.242.201"},
		{"no link-local address", []rtnetlink.Address{permanent(eth0, "169.254.1.1/16"), onEth1}, nil, "10.0.1.1"},
		{"no address of link scope", []rtnetlink.Address{with(onEth0, func(a *rtnetlink.Address) { a.Scope = unix.RT_SCOPE_LINK }), onEth1}, nil, "10.0.1.1"},
		{"no IPv6", []rtnetlink.Address{permanent(eth0, "fd00::1/64")}, nil, "77.13.242.201"},
	} {
		if got := routerID([]Link{eth1, eth0, lo}, tt.addrs, tt.except, "m1"); got.String() != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestGlobalAddr6(t *testing.T) {
	eth1 := Link{Index: 3, Name: "eth1"}
	v4, ll := permanent(eth0, "10.0.0.1/24"), with(permanent(eth0, "fe80::1/64"), func(a *rtnetlink.Address) { a.Scope = unix.RT_SCOPE_LINK })
	first, second := permanent(eth0, "fd00::1/64"), permanent(eth0, "fd00::2/64")
	flagged := func(flag uint32) rtnetlink.Address {
		return with(first, func(a *rtnetlink.Address) { a.Flags |= flag })
	}
	for _, tt := range []struct {
		name  string
		addrs []rtnetlink.Address
		local string
		want  string // address, or part of the error
	}{
		{"of an IPv4 session", []rtnetlink.Address{v4, ll, first}, "10.0.0.1", "fd00::1"},
		{"of an IPv4 session, address mapped", []rtnetlink.Address{v4, ll, first}, "::ffff:10.0.0.1", "fd00::1"},
		{"of a link-local session", []rtnetlink.Address{v4, ll, first}, "fe80::1", "fd00::1"},
		{"of an IPv6 session", []rtnetlink.Address{v4, ll, first, second}, "fd00::2", "fd00::2"},
		{"the lowest, in any order", []rtnetlink.Address{v4, second, first}, "10.0.0.1", "fd00::1"},
		{"of the same link", []rtnetlink.Address{v4, first, permanent(eth1, "fd00:1::1/64")}, "10.0.0.1", "fd00::1"},
		{"of the link with a global address, if several have the local one", []rtnetlink.Address{v4, permanent(eth1, "10.0.0.1/32"), permanent(eth1, "fd00:1::1/64")}, "10.0.0.1", "fd00:1::1"},
		{"of the zone's link", []rtnetlink.Address{ll, first, with(ll, func(a *rtnetlink.Address) { a.Link = 3 }), permanent(eth1, "fd00:1::1/64")}, "fe80::1%eth1", "fd00:1::1"},
		{"no VIP", []rtnetlink.Address{v4, vip(eth0, vip6)}, "10.0.0.1", "link eth0 with 10.0.0.1 has no global IPv6 address"},
		{"no temporary address", []rtnetlink.Address{v4, flagged(unix.IFA_F_TEMPORARY), second}, "10.0.0.1", "fd00::2"},
		{"no tentative address", []rtnetlink.Address{v4, flagged(unix.IFA_F_TENTATIVE), second}, "10.0.0.1", "fd00::2"},
		{"no duplicate address", []rtnetlink.Address{v4, flagged(unix.IFA_F_DADFAILED), second}, "10.0.0.1", "fd00::2"},
		{"only link-local", []rtnetlink.Address{v4, ll}, "10.0.0.1", "set the peer's nextHop6"},
		{"no such local address", []rtnetlink.Address{v4, first}, "10.0.0.2", "no link has 10.0.0.2"},
		{"not in the zone", []rtnetlink.Address{ll, first}, "fe80::1%eth1", "no link has fe80::1"},
	} {
		got, err := globalAddr6([]Link{eth1, eth0, lo}, tt.addrs, netip.MustParseAddr(tt.local))
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
