package daemon

import (
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/speaker/flat"
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

// An address that nodes hold as a Service's has another lease than a VIP of the file.
func TestUntaken(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	subject := func(a config.Announce) *config.Config {
		return &config.Config{VIPs: []config.VIP{{Name: "cp", Announce: a, Addresses: []netip.Addr{addr}}}}
	}
	held := []flat.Address{{Addr: addr, Service: "default/web", Pool: "lan"}}
	for _, tt := range []struct {
		name     string
		old, new *config.Config
		held     []flat.Address
		want     string
	}{
		{name: "free", old: new(config.Config), new: subject(config.AnnounceARP)},
		{name: "it was there before", old: subject(config.AnnounceARP), new: subject(config.AnnounceARP), held: held},
		{name: "by BGP", old: new(config.Config), new: subject(config.AnnounceBGP), held: held},
		{
			name: "a Service's", old: new(config.Config), new: subject(config.AnnounceARP), held: held,
			want: "vips: 10.0.0.1 is the address of Service default/web, for which a node may answer already: take it out of pool lan and from the Service first",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := untaken(tt.old, tt.new, tt.held); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
