package secondchance

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/nettest"
)

func TestTunnel(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	var tunnel vxlan
	v4, v6 := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")
	ensure := func(number uint16, local netip.Addr) (index int) {
		t.Helper()
		h.In(func() {
			var err error
			index, err = tunnel.ensure(number, local)
			h.Must(err)
			h.Must(tunnel.reach(number, nil, false))
		})
		got := h.Link("herald-tunnel").(*netlink.Vxlan)
		if got.HardwareAddr[4] != byte(number>>8) || got.HardwareAddr[5] != byte(number) || got.SrcAddr.String() != local.String() ||
			!got.GBP || got.Learning || got.VtepDevIndex != 0 || got.Port != 7947 || got.Index != index {
			t.Errorf("number %d at %s: link %+v", number, local, got)
		}
		h.In(func() {
			value, err := os.ReadFile("/proc/sys/net/ipv4/conf/herald-tunnel/rp_filter")
			if err != nil || strings.TrimSpace(string(value)) != "2" {
				t.Errorf("rp_filter is %q, %v", value, err)
			}
		})
		return index
	}
	h.In(func() {
		_, err := tunnel.ensure(0x123, v4)
		h.Must(err)
	})
	if l := h.Link("herald-tunnel"); l.Attrs().Flags&net.FlagUp != 0 {
		t.Error("a new link is up before reach")
	}
	first := ensure(0x123, v4)
	if h.Find("herald-tunnel", netip.MustParseAddr("240.0.1.35")) == nil {
		t.Error("the link has no address: Linux receives no IPv4 on it")
	}
	h.In(func() {
		h.Must(tunnel.reach(0x123, map[uint16]netip.Addr{0x234: netip.MustParseAddr("10.0.2.1")}, true))
		h.Must(tunnel.reach(0x123, map[uint16]netip.Addr{0x234: netip.MustParseAddr("10.0.3.1")}, true)) // its address has changed
	})
	fdb, err := h.NL.NeighList(first, unix.AF_BRIDGE)
	h.Must(err)
	if len(fdb) != 1 || fdb[0].IP.String() != "10.0.3.1" || fdb[0].HardwareAddr.String() != "02:68:00:00:02:34" {
		t.Errorf("forwarding table: %v", fdb)
	}
	h.SetDown("herald-tunnel")
	if again := ensure(0x123, v4); again != first {
		t.Error("an unchanged link was replaced")
	}
	other := ensure(0x124, v4)
	if other == first || ensure(0x124, v6) == other {
		t.Error("the link was not replaced for another number or address")
	}
	h.In(func() {
		h.Must(tunnel.removeLink())
		h.Must(tunnel.removeLink())
		if err := tunnel.reach(1, nil, false); err == nil {
			t.Error("reach succeeds without the link")
		}
	})
	// A link of another kind with this name is replaced.
	h.Must(h.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "herald-tunnel"}}))
	ensure(1, v4)
}
