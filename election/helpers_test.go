package election

import (
	"net/netip"
)

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func trio() map[string]netip.AddrPort {
	return map[string]netip.AddrPort{"m1": ap("10.0.0.1:7946"), "m2": ap("10.0.0.2:7946"), "m3": ap("10.0.0.3:7946")}
}

// allAlive returns the members that are alive to this one.
func (m *member) allAlive() []string {
	if n := m.running(); n != nil {
		return n.alive()
	}
	return nil
}
