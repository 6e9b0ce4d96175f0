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
