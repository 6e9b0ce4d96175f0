package convert

import (
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/config"
)

// An address lives for the lease, rounded up to whole seconds, and for 2 s at least.
func TestLifetime(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond:  2 * time.Second,
		600 * time.Millisecond:  2 * time.Second,
		2 * time.Second:         2 * time.Second,
		2100 * time.Millisecond: 3 * time.Second,
		10 * time.Second:        10 * time.Second,
	} {
		if got := Lifetime(lease); got != want {
			t.Errorf("with a lease of %v an address lives %v, want %v", lease, got, want)
		}
	}
}

// An address that a predecessor held by a lease is not adopted.
func TestBindingsToAdopt(t *testing.T) {
	routed, flat := netip.MustParseAddr("10.99.0.10"), netip.MustParseAddr("10.4.0.10")
	got := Bindings(&config.Config{VIPs: []config.VIP{
		{Name: "routed", Interface: "lo", Addresses: []netip.Addr{routed}},
		{Name: "flat", Interface: "eth0", Announce: config.AnnounceARP, Addresses: []netip.Addr{flat}},
	}})
	if len(got) != 1 || got[0].Addr != routed || got[0].Interface != "lo" {
		t.Errorf("bindings are %v, want %v on lo only", got, routed)
	}
}
