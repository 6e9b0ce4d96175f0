package facts

import (
	"maps"
	"testing"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/nettest"
)

// Peers by default gateway are asked at each gateway; a running Herald reports each gateway.
func TestAskGateways(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("there0", "there1")
	h.Route("::/0", "there0", "fe80::1") // on a link of this test only
	c := parsed(t, routedFile)
	c.BGP.Peers = []v1alpha1.Peer{{DefaultGateway: v1alpha1.IPv4, ASN: v1alpha1.External, Port: 179}, {DefaultGateway: v1alpha1.IPv6, ASN: 64500, Port: 179}}
	for _, tt := range []struct {
		name    string
		running *admin.Status
		want    map[string]string
	}{
		{name: "without Herald", want: map[string]string{
			"default-ipv4": "no default route of the main routing table has a gateway",
			"default-ipv6": "cannot connect to fe80::1%there0: dial tcp [fe80::1%there0]:179: connect: invalid argument",
		}},
		{name: "running Herald", running: &admin.Status{Peers: []bgp.Session{
			{Name: "10.0.1.253", Gateway: "default-ipv4", State: bgp.Established},
			{Name: "10.0.1.254", Gateway: "default-ipv4", State: "idle", Reason: "no answer yet"},
			{Name: "fe80::1%eth0", Gateway: "default-ipv6", State: bgp.Established},
		}}, want: map[string]string{"default-ipv4": "no answer yet", "default-ipv6": ""}},
		{name: "BFD is down", running: &admin.Status{Peers: []bgp.Session{
			{Name: "10.0.1.254", State: bgp.Established, Reason: "routes wait for BFD", BFD: &bfd.Status{State: bfd.Down, Reason: "no packet"}},
		}}, want: map[string]string{"10.0.1.254": "BFD is down: no packet"}},
	} {
		var got map[string]string
		h.In(func() { got = (&Facts{Running: tt.running}).askPeers(t.Context(), c) })
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
