package netutil_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil"
)

func TestLook(t *testing.T) {
	h := newHost(t)
	h.addVeth("eth0", "eth1")
	h.add("eth0", "10.0.0.1/24")
	h.add("lo", "10.99.0.10/32")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.must(h.nl.NeighSet(&netlink.Neigh{
		LinkIndex: h.link("eth0").Attrs().Index, IP: net.IPv4(10, 0, 0, 9), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	}))
	var s netutil.Survey
	var err error
	h.in(func() { s, err = netutil.Look() })
	h.must(err)
	if l := s.Links["eth0"]; !l.Up || !slices.Contains(l.Prefixes, netip.MustParsePrefix("10.0.0.0/24")) {
		t.Errorf("eth0 is %+v", l)
	}
	if link, ok := s.Has(netip.MustParseAddr("10.99.0.10")); !ok || link != "lo" {
		t.Errorf("10.99.0.10 is on %q, %t", link, ok)
	}
	if _, ok := s.Has(netip.MustParseAddr("10.99.0.11")); ok {
		t.Error("10.99.0.11 is somewhere")
	}
	for _, a := range s.Addresses {
		if a.Herald {
			t.Errorf("%+v counts as Herald's", a)
		}
	}
	if link, err := s.LinkFor(netip.MustParseAddr("10.0.0.100")); err != nil || link != "eth0" {
		t.Errorf("10.0.0.100 belongs to %q, %v", link, err)
	}
	if len(s.Neighbours) != 1 || s.Neighbours[0].Link != "eth0" || s.Neighbours[0].MAC.String() != mac.String() {
		t.Errorf("neighbours are %+v", s.Neighbours)
	}
}
