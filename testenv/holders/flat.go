package holders

import (
	"net"
	"net/netip"

	"github.com/herald-vip/herald/testenv/lab"
)

// Flat returns the target of an observer on the node o1 of flat.clab.yml.
func Flat(l *lab.Lab) Target {
	return On(l, []string{"m1", "m2", "m3"},
		[]netip.Addr{netip.MustParseAddr("10.4.0.10"), netip.MustParseAddr("fd00:4::10")},
		netip.MustParseAddr("10.4.0.128"), netip.MustParseAddr("fd00:4::80"))
}

// On returns the target of an observer on the bridge "lan". The observer may use the
// addresses from each of the senders on.
func On(l *lab.Lab, masters []string, vips []netip.Addr, senders ...netip.Addr) Target {
	t := Target{Link: "eth1", VIPs: vips, Senders: senders, Masters: make(map[string]net.HardwareAddr)}
	for _, m := range masters {
		t.Masters[m] = l.Link(m, "lan").MAC(m)
	}
	return t
}
