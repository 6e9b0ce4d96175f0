package link_test

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/testenv/nettest"
)

func TestTunnel(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	var tunnel link.Tunnel
	v4, v6 := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")
	ensure := func(number uint16, local netip.Addr) (index int) {
		t.Helper()
		h.In(func() {
			var err error
			index, err = tunnel.Ensure(number, local)
			h.Must(err)
			h.Must(tunnel.Reach(number, nil, false))
		})
		is := h.Link("herald-tunnel").(*netlink.Vxlan)
		if is.HardwareAddr[4] != byte(number>>8) || is.HardwareAddr[5] != byte(number) || is.SrcAddr.String() != local.String() ||
			!is.GBP || is.Learning || is.VtepDevIndex != 0 || is.Port != 7947 || is.Index != index {
			t.Errorf("of number %d at %s the link is %+v", number, local, is)
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
		_, err := tunnel.Ensure(0x123, v4)
		h.Must(err)
	})
	if l := h.Link("herald-tunnel"); l.Attrs().Flags&net.FlagUp != 0 {
		t.Error("it takes in packets before it is told from whom")
	}
	first := ensure(0x123, v4)
	if h.Find("herald-tunnel", netip.MustParseAddr("240.0.1.35")) == nil {
		t.Error("the link has no address: Linux takes nothing in by it")
	}
	h.In(func() {
		h.Must(tunnel.Reach(0x123, map[uint16]netip.Addr{0x234: netip.MustParseAddr("10.0.2.1")}, true))
		h.Must(tunnel.Reach(0x123, map[uint16]netip.Addr{0x234: netip.MustParseAddr("10.0.3.1")}, true)) // it has another address now
	})
	fdb, err := h.NL.NeighList(first, unix.AF_BRIDGE)
	h.Must(err)
	if len(fdb) != 1 || fdb[0].IP.String() != "10.0.3.1" || fdb[0].HardwareAddr.String() != "02:68:00:00:02:34" {
		t.Errorf("the table of MACs is %v", fdb)
	}
	h.SetDown("herald-tunnel")
	if again := ensure(0x123, v4); again != first {
		t.Error("what is as it should be is made anew")
	}
	other := ensure(0x124, v4)
	if other == first || ensure(0x124, v6) == other {
		t.Error("it stays with another number, or another address")
	}
	h.In(func() {
		h.Must(tunnel.Remove())
		h.Must(tunnel.Remove())
		if err := tunnel.Reach(1, nil, false); err == nil {
			t.Error("reached by no link")
		}
	})
	// A link of that name that is none of Herald's kind would not do.
	h.Must(h.NL.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "herald-tunnel"}}))
	ensure(1, v4)
}
