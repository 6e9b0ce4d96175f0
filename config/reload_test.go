package config_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election/electorate"
)

func TestServicesCannotChange(t *testing.T) {
	servicesWith := func(change func(*config.Services)) *config.Config {
		s := &config.Services{LoadBalancerClass: "herald.dev/vip", Linger: time.Second}
		change(s)
		return &config.Config{Services: s}
	}
	same := servicesWith(func(*config.Services) {})
	for _, tt := range []struct {
		name     string
		old, new *config.Config
		want     string
	}{
		{name: "the same", old: same, new: servicesWith(func(*config.Services) {})},
		{name: "at the start", new: same},
		{name: "never there", old: &config.Config{}, new: &config.Config{}},
		{name: "added", old: &config.Config{}, new: same, want: "services"},
		{name: "removed", old: same, new: &config.Config{}, want: "services"},
		{name: "another cluster", old: same, new: servicesWith(func(s *config.Services) { s.Kubeconfig = "/etc/k" }), want: "services.kubeconfig"},
		{name: "no candidate", old: same, new: servicesWith(func(s *config.Services) { s.Assign = true }), want: "services.assign"},
		{name: "linger", old: same, new: servicesWith(func(s *config.Services) { s.Linger = 0 }), want: "services.linger"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := config.CheckReload(tt.old, tt.new); err != nil {
				got = err.Error()
			}
			if tt.want != "" {
				tt.want += " cannot change while running: restart herald to apply it"
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnmoved(t *testing.T) {
	vip := func(name string, a config.Announce, addrs ...string) config.VIP {
		v := config.VIP{Name: name, Announce: a}
		for _, addr := range addrs {
			v.Addresses = append(v.Addresses, netip.MustParseAddr(addr))
		}
		return v
	}
	fileOf := func(vips ...config.VIP) *config.Config { return &config.Config{VIPs: vips} }
	const bgp, arp = config.AnnounceBGP, config.AnnounceARP
	for _, tt := range []struct {
		name     string
		old, new *config.Config
		want     string
	}{
		{name: "the same", old: fileOf(vip("cp", arp, "10.0.0.1")), new: fileOf(vip("cp", arp, "10.0.0.1"))},
		{name: "one more address", old: fileOf(vip("cp", arp, "10.0.0.1")), new: fileOf(vip("cp", arp, "10.0.0.1", "fd00::1"))},
		{name: "gone", old: fileOf(vip("cp", arp, "10.0.0.1")), new: fileOf()},
		{name: "renamed by BGP", old: fileOf(vip("cp", bgp, "10.0.0.1")), new: fileOf(vip("api", bgp, "10.0.0.1"))},
		{
			name: "renamed", old: fileOf(vip("cp", arp, "10.0.0.1")), new: fileOf(vip("api", arp, "10.0.0.1")),
			want: "vips: 10.0.0.1 cannot move from cp (arp) to api (arp) while running, as nodes with the old file would answer too: remove it on all nodes first, then add it",
		},
		{
			name: "from ARP to BGP", old: fileOf(vip("cp", arp, "10.0.0.1")), new: fileOf(vip("cp", bgp, "10.0.0.1")),
			want: "vips: 10.0.0.1 cannot move from cp (arp) to cp (bgp) while running, as nodes with the old file would answer too: remove it on all nodes first, then add it",
		},
		{
			name: "from BGP to ARP", old: fileOf(vip("cp", bgp, "10.0.0.1")), new: fileOf(vip("cp", arp, "10.0.0.1")),
			want: "vips: 10.0.0.1 cannot move from cp (bgp) to cp (arp) while running, as nodes with the old file would answer too: remove it on all nodes first, then add it",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := config.CheckReload(tt.old, tt.new); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRemoved(t *testing.T) {
	fileWith := func(change func(*config.Config)) *config.Config {
		c := &config.Config{
			VIPs:      []config.VIP{{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}, Checks: []string{"apiserver", "registry"}}},
			BGP:       &config.BGP{ASN: 64512, Peers: []v1alpha1.Peer{{Address: netip.MustParseAddr("10.0.1.254")}, {Interface: "eth0"}}},
			Balancers: []balancer.Config{{Name: "web", Backends: balancer.Backends{Static: &balancer.Static{Addresses: []netip.AddrPort{{}, netip.MustParseAddrPort("10.9.1.1:80")}}}}},
			Election:  &electorate.Settings{Members: map[string]netip.AddrPort{"m1": {}, "m2": {}}},
		}
		change(c)
		return c
	}
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"nothing":       {func(*config.Config) {}, nil},
		"another ASN":   {func(c *config.Config) { c.BGP.ASN++ }, nil},
		"a VIP renamed": {func(c *config.Config) { c.VIPs[0].Name = "b" }, nil},
		"one more":      {func(c *config.Config) { c.VIPs = append(c.VIPs, config.VIP{Addresses: []netip.Addr{{}}}) }, nil},
		"an address":    {func(c *config.Config) { c.VIPs[0].Addresses = c.VIPs[0].Addresses[:1] }, []string{"vip 10.9.0.2"}},
		"a check":       {func(c *config.Config) { c.VIPs[0].Checks = c.VIPs[0].Checks[:1] }, []string{"check registry of vip 10.9.0.1", "check registry of vip 10.9.0.2"}},
		"a backend": {func(c *config.Config) {
			c.Balancers[0].Backends.Static = &balancer.Static{Addresses: make([]netip.AddrPort, 1)}
		}, []string{"backend 10.9.1.1:80 of balancer web"}},
		"another address": {func(c *config.Config) { c.VIPs[0].Addresses[1] = netip.IPv6Loopback() }, []string{"vip 10.9.0.2"}},
		"a peer":          {func(c *config.Config) { c.BGP.Peers = c.BGP.Peers[:1] }, []string{"peer eth0"}},
		"a balancer":      {func(c *config.Config) { c.Balancers = nil }, []string{"balancer web"}},
		"a member":        {func(c *config.Config) { delete(c.Election.Members, "m2") }, []string{"member m2"}},
		"everything":      {func(c *config.Config) { *c = config.Config{} }, []string{"vip 10.9.0.1", "vip 10.9.0.2", "peer 10.0.1.254", "peer eth0", "balancer web", "member m1", "member m2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := config.Removed(fileWith(func(*config.Config) {}), fileWith(tt.change))
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
