package holders

import (
	"net"
	"net/netip"

	"github.com/herald-vip/herald/testenv/lab"
)

// Flat is what an observer on the node o1 of flat.clab.yml is to watch.
func Flat(l *lab.Lab) Target {
	t := Target{
		Link:    "eth1",
		VIPs:    []netip.Addr{netip.MustParseAddr("10.4.0.10"), netip.MustParseAddr("fd00:4::10")},
		Senders: []netip.Addr{netip.MustParseAddr("10.4.0.128"), netip.MustParseAddr("fd00:4::80")},
		Masters: make(map[string]net.HardwareAddr),
	}
	for _, m := range []string{"m1", "m2", "m3"} {
		t.Masters[m] = l.Link(m, "lan").MAC(m)
	}
	return t
}
