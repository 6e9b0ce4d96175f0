package bgp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/herald-vip/herald/api/v1alpha1"
)

func TestOffersOf(t *testing.T) {
	families := func(families ...packet.Family) (out []packet.ParameterCapabilityInterface) {
		for _, f := range families {
			out = append(out, packet.NewCapMultiProtocol(f))
		}
		return out
	}
	for name, test := range map[string]struct {
		says []packet.ParameterCapabilityInterface
		want offers
	}{
		"no families": {[]packet.ParameterCapabilityInterface{packet.NewCapRouteRefresh()}, offers{ipv4: true}},
		"IPv4":        {families(packet.RF_IPv4_UC), offers{ipv4: true}},
		"IPv6 alone":  {families(packet.RF_IPv6_UC), offers{ipv6: true}},
		"both":        {families(packet.RF_IPv4_UC, packet.RF_IPv6_UC), offers{ipv4: true, ipv6: true}},
		"another":     {families(packet.RF_EVPN), offers{}},
		"IPv4 over IPv6": {
			append(families(packet.RF_IPv4_UC), packet.NewCapExtendedNexthop([]*packet.CapExtendedNexthopTuple{packet.NewCapExtendedNexthopTuple(packet.RF_IPv4_UC, packet.AFI_IP6)})),
			offers{ipv4: true, extended4: true},
		},
	} {
		if got := offersOf(test.says); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// GoBGP names only the subcodes of RFC 4486.
func TestExplainEndByCease(t *testing.T) {
	for subcode, want := range map[uint8]string{8: "8(out of resources)", 9: "9(hard reset)", 10: "10(bfd down)", 11: "11(undefined)"} {
		said := "notification-received " + packet.NewNotificationErrorCode(packet.BGP_ERROR_CEASE, subcode).String()
		if got := explainEnd(apiutil.PeerState{DisconnectMessage: said}); got != "notification-received code 6(cease) subcode "+want {
			t.Errorf("%q, want %q at its end", got, want)
		}
	}
}

// Routes that the peer does not accept are not reported as advertised.
func TestFamilyThatThePeerDoesNotTake(t *testing.T) {
	conf := watchedPeer("127.0.0.8", false)
	conf.Families, conf.NextHop6 = append(conf.Families, v1alpha1.IPv6), netip.MustParseAddr("fd00::1")
	s := watchedServer(t, conf)
	s.mu.Lock()
	p := s.peers["127.0.0.8"]
	p.offers = offers{ipv4: true}
	for _, prefix := range []string{"10.99.0.10/32", "fd00:99::10/128"} {
		s.routes[netip.MustParsePrefix(prefix)] = Route{}
	}
	s.mu.Unlock()
	if got := session(s, "127.0.0.8"); len(got.Advertised) != 1 || !strings.Contains(got.Reason, "takes no IPv6 routes") {
		t.Errorf("the peer has %v, because %q", got.Advertised, got.Reason)
	}
}
