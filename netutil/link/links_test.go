package link

import (
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

const passing = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING

// linkState returns an RTM_NEWLINK or RTM_DELLINK with the attributes of a Link.
func linkState(typ netlink.HeaderType, index, flags uint32, name string, mac net.HardwareAddr, kind string) netlink.Message {
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.IFLA_ADDRESS, mac)
	if kind != "" {
		attrs.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
			info.String(unix.IFLA_INFO_KIND, kind)
			return nil
		})
	}
	encoded, err := attrs.Encode()
	if err != nil {
		panic(err)
	}
	return netlink.Message{Header: netlink.Header{Type: typ}, Data: append(linkMessage(unix.AF_UNSPEC, index, flags, name), encoded...)}
}

func addressMessage(typ netlink.HeaderType, a rtnetlink.Address) netlink.Message {
	b, err := rtnetlink.EncodeAddress(a)
	if err != nil {
		panic(err)
	}
	return netlink.Message{Header: netlink.Header{Type: typ}, Data: b}
}

// apply updates the table by a message of the kernel, and reports whether any link changed.
func apply(t linkTable, m netlink.Message) (bool, error) {
	e, ok, err := rtnetlink.DecodeEvent(m)
	if err != nil || !ok {
		return false, err
	}
	before := t.byName()
	may := t.apply(e)
	changed := !maps.EqualFunc(before, t.byName(), Link.Equal)
	if changed && !may {
		return true, errors.New("the table reports no change")
	}
	return changed, nil
}

func TestLinkTable(t *testing.T) {
	mac, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	want := Link{Name: "eth0", Index: 2, AdminUp: true, Up: true, MAC: mac, MTU: 1500}
	subnet, subnet6 := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")
	changed := func(f func(*Link)) Link { f(&want); return want }
	same := func() Link { return want }
	table := newLinkTable(nil, nil)
	for _, step := range []struct {
		name    string
		msg     netlink.Message
		changed bool
		want    Link // zero: no link
	}{
		{"address of an unknown link", addressMessage(unix.RTM_NEWADDR, permanent(eth0, "10.0.0.1/24")), false, Link{}},
		{"appears", linkState(unix.RTM_NEWLINK, 2, passing, "eth0", mac, ""), true, changed(func(l *Link) { l.Prefixes = []netip.Prefix{subnet} })},
		{"unchanged", linkState(unix.RTM_NEWLINK, 2, passing, "eth0", mac, ""), false, same()},
		{"no carrier", linkState(unix.RTM_NEWLINK, 2, unix.IFF_UP|unix.IFF_RUNNING, "eth0", mac, ""), true, changed(func(l *Link) { l.Up = false })},
		{"carrier", linkState(unix.RTM_NEWLINK, 2, passing, "eth0", mac, ""), true, changed(func(l *Link) { l.Up = true })},
		{"dormant", linkState(unix.RTM_NEWLINK, 2, unix.IFF_UP|unix.IFF_LOWER_UP, "eth0", mac, ""), true, changed(func(l *Link) { l.Up = false })},
		{"up, with another MAC", linkState(unix.RTM_NEWLINK, 2, passing, "eth0", other, ""), true, changed(func(l *Link) { l.Up, l.MAC = true, other })},
		{"a VIP", addressMessage(unix.RTM_NEWADDR, permanent(eth0, "10.0.0.99/32")), false, same()},
		{"a link-local address", addressMessage(unix.RTM_NEWADDR, permanent(eth0, "fe80::1/64")), false, same()},
		{"a second address in the subnet", addressMessage(unix.RTM_NEWADDR, permanent(eth0, "10.0.0.2/24")), false, same()},
		{"a second subnet", addressMessage(unix.RTM_NEWADDR, permanent(eth0, "fd00::1/64")), true, changed(func(l *Link) { l.Prefixes = []netip.Prefix{subnet, subnet6} })},
		{"one address of the subnet removed", addressMessage(unix.RTM_DELADDR, permanent(eth0, "10.0.0.1/24")), false, same()},
		{"last address of the subnet removed", addressMessage(unix.RTM_DELADDR, permanent(eth0, "10.0.0.2/24")), true, changed(func(l *Link) { l.Prefixes = []netip.Prefix{subnet6} })},
		{"renamed", linkState(unix.RTM_NEWLINK, 2, passing, "lan0", other, ""), true, changed(func(l *Link) { l.Name = "lan0" })},
		{"deleted", linkState(unix.RTM_DELLINK, 2, 0, "lan0", other, ""), true, Link{}},
		{"a bridge under the same index", linkState(unix.RTM_NEWLINK, 2, passing, "eth0", nil, "bridge"), true, Link{Name: "eth0", Index: 2, AdminUp: true, Up: true, MTU: 1500, Kind: "bridge"}},
		{"address of the previous link removed", addressMessage(unix.RTM_DELADDR, permanent(eth0, "fd00::1/64")), false, Link{Name: "eth0", Index: 2, AdminUp: true, Up: true, MTU: 1500, Kind: "bridge"}},
		{"another message", netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWROUTE}}, false, Link{Name: "eth0", Index: 2, AdminUp: true, Up: true, MTU: 1500, Kind: "bridge"}},
	} {
		changed, err := apply(table, step.msg)
		var got Link
		for _, l := range table.byName() {
			got = l
		}
		if diff := cmp.Diff(step.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" || changed != step.changed || err != nil {
			t.Errorf("%s: changed %v, want %v, error %v (-want +got):\n%s", step.name, changed, step.changed, err, diff)
		}
	}
	if _, err := apply(table, netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: []byte{0}}); err == nil {
		t.Error("broken message: no error")
	}
}

func TestLinkOfAddress(t *testing.T) {
	links := map[int]Link{
		1: {Index: 1, Name: "lo"},
		2: {Index: 2, Name: "eth0", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/64")}},
		3: {Index: 3, Name: "eth1", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("192.168.0.0/24")}},
		4: {Index: 4, Name: "eth2", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}},
	}
	for addr, want := range map[string]string{
		"10.0.2.1":    "eth0",
		"10.0.1.1":    "eth1", // the smaller subnet
		"fd00::99":    "eth0",
		"fd00:1::1":   "find the link for fd00:1::1: no link has an address in its subnet: name it as interface of the VIP, or in arp.interfaces of the pool",
		"192.168.0.9": "find the link for 192.168.0.9: eth1 and eth2 are both in its subnet: name it as interface of the VIP, or in arp.interfaces of the pool",
	} {
		got, err := linkFor(maps.Values(links), netip.MustParseAddr(addr))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// Among chooses among the named links only.
func TestAmong(t *testing.T) {
	links := make(map[string]Link)
	for i, l := range []struct{ name, prefix string }{{"eth0", "10.0.0.0/24"}, {"eth1", "10.0.1.0/24"}, {"eth2", "fd00:1::/64"}} {
		links[l.name] = Link{Index: i + 1, Name: l.name, Prefixes: []netip.Prefix{netip.MustParsePrefix(l.prefix)}}
	}
	for _, tt := range []struct{ addr, names, want string }{
		{"10.0.1.9", "", "eth1"},
		{"10.0.1.9", "eth0 eth1", "eth1"},
		{"fd00:1::9", "eth0 eth2", "eth2"},
		{"10.0.1.9", "eth2 eth0", "eth2"},
		{"10.0.1.9", "eth9 eth0", "eth0"},
		{"::ffff:10.0.1.9", "", "eth1"},
		{"10.0.2.9", "", "find the link for 10.0.2.9: no link has an address in its subnet: name it as interface of the VIP, or in arp.interfaces of the pool"},
		{"10.0.1.9", "eth8 eth9", "find the link for 10.0.1.9: there is no eth8 or eth9"},
	} {
		got, err := Among(links, strings.Fields(tt.names), netip.MustParseAddr(tt.addr))
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s among %q: %s, want %s", tt.addr, tt.names, got, tt.want)
		}
	}
}

func TestWatchLinksCannotStart(t *testing.T) {
	const unused = 1 << 30 // not an open file descriptor
	if err := Watch(t.Context(), &rtnetlink.Watcher{NetNS: unused}, func(map[string]Link) {}); err == nil {
		t.Error("no error")
	}
}

func FuzzLinkTable(f *testing.F) {
	for _, m := range []netlink.Message{
		linkState(unix.RTM_NEWLINK, 2, passing, "eth0", net.HardwareAddr{2, 0, 0, 0, 0, 1}, "veth"),
		linkState(unix.RTM_DELLINK, 2, 0, "eth0", nil, ""),
		addressMessage(unix.RTM_NEWADDR, permanent(eth0, "10.0.0.1/24")),
		addressMessage(unix.RTM_DELADDR, permanent(eth0, "10.0.0.1/24")),
	} {
		f.Add(uint16(m.Header.Type), m.Data)
	}
	f.Fuzz(func(t *testing.T, typ uint16, b []byte) {
		table := newLinkTable(nil, nil)
		m := netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(typ)}, Data: b}
		if changed, err := apply(table, m); changed && err != nil {
			t.Fatalf("changed and error %v", err)
		}
		if changed, _ := apply(table, m); changed {
			t.Fatal("the same event changes the table twice")
		}
		for name, l := range table.byName() {
			if name == "" || int(int32(binary.NativeEndian.Uint32(b[4:8]))) != l.Index {
				t.Fatalf("bad link %+v", l)
			}
		}
	})
}

var (
	lo   = Link{Index: 1, Name: "lo", AdminUp: true, Loopback: true}
	eth0 = Link{Index: 2, Name: "eth0", AdminUp: true}

	vip4 = netip.MustParseAddr("10.99.0.10")
	vip6 = netip.MustParseAddr("fd00:99::10")
)

// permanent returns an address as an administrator adds it.
func permanent(l Link, cidr string) rtnetlink.Address {
	p := netip.MustParsePrefix(cidr)
	return rtnetlink.Address{Link: l.Index, IP: p.Addr(), Subnet: p.Masked(), Flags: unix.IFA_F_PERMANENT, Valid: rtnetlink.Infinite, Preferred: rtnetlink.Infinite}
}

// vip returns an address as Herald adds it.
func vip(l Link, ip netip.Addr) rtnetlink.Address {
	a := rtnetlink.Address{Link: l.Index, IP: ip, Subnet: netip.PrefixFrom(ip, ip.BitLen()), Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED, Valid: 10}
	if l.Loopback {
		a.Scope = unix.RT_SCOPE_HOST
	}
	return a
}

func with(a rtnetlink.Address, edit func(*rtnetlink.Address)) rtnetlink.Address {
	edit(&a)
	return a
}

// linkMessage returns an ifinfomsg.
func linkMessage(family byte, index, flags uint32, name string) []byte {
	b := []byte{family, 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	attrs := netlink.NewAttributeEncoder()
	attrs.Uint32(unix.IFLA_MTU, 1500)
	attrs.String(unix.IFLA_IFNAME, name)
	encoded, err := attrs.Encode()
	if err != nil {
		panic(err)
	}
	return append(b, encoded...)
}

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
