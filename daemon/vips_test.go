package daemon

import (
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/config"
)

// An address that a predecessor held by a lease is not adopted.
func TestBindingsToAdopt(t *testing.T) {
	routed, flat := netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("10.4.0.10")
	got := bindingsOf(&config.Config{VIPs: []config.VIP{
		{Name: "routed", Interface: "lo", Addresses: []netip.Addr{routed}},
		{Name: "flat", Interface: "eth0", Announce: config.AnnounceARP, Addresses: []netip.Addr{flat}},
	}})
	if len(got) != 1 || got[0].Addr != routed || got[0].Interface != "lo" {
		t.Errorf("bindings are %v, want %v on lo only", got, routed)
	}
}
