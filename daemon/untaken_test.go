package daemon

import (
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/speaker/flat"
)

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
