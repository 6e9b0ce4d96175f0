package link_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/herald-vip/herald/netutil/link"

	"github.com/herald-vip/herald/testenv/nettest"
)

func TestReadSurvey(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "eth1")
	h.Add("eth0", "10.0.0.1/24")
	h.Add("lo", "10.99.0.10/32")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	h.Must(h.NL.NeighSet(&netlink.Neigh{
		LinkIndex: h.Link("eth0").Attrs().Index, IP: net.IPv4(10, 0, 0, 9), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
	}))
	var s link.Survey
	var err error
	h.In(func() { s, err = link.ReadSurvey() })
	h.Must(err)
	if l := s.Links["eth0"]; !l.Up || !slices.Contains(l.Prefixes, netip.MustParsePrefix("10.0.0.0/24")) {
		t.Errorf("eth0 is %+v", l)
	}
	if link, ok := s.Has(netip.MustParseAddr("10.99.0.10")); !ok || link != "lo" {
		t.Errorf("10.99.0.10 is on %q, %t", link, ok)
	}
	if _, ok := s.Has(netip.MustParseAddr("10.99.0.11")); ok {
		t.Error("10.99.0.11 is on a link")
	}
	for _, a := range s.Addresses {
		if a.Herald {
			t.Errorf("%+v counts as Herald's", a)
		}
	}
	if link, err := s.For(netip.MustParseAddr("10.0.0.100")); err != nil || link != "eth0" {
		t.Errorf("10.0.0.100 belongs to %q, %v", link, err)
	}
	if len(s.Neighbours) != 1 || s.Neighbours[0].MAC.String() != mac.String() {
		t.Errorf("neighbours are %+v", s.Neighbours)
	}
}
