//go:build e2e

package e2e

import (
	"cmp"
	"net/netip"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/admin"
)

// session is a kind of BGP session: the configuration of both ends, and what
// FRR shows when it is up.
type session struct {
	name string
	// router is the node that runs FRR, r1 if empty, asn its AS number, 64500
	// if zero, and frr what its bgp section has.
	router string
	asn    uint32
	frr    string
	// herald is what the speaker's bgp section has.
	herald string
	// neighbor is the speaker's name in FRR, peer the router's in the speaker's status.
	neighbor, peer string
	// paths are what FRR has of each VIP.
	paths map[string]path
	// check looks at what is special about it.
	check func(t *testing.T, n neighbor, p admin.Peer)
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

var sessions = []session{{
	name: "MD5",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 password sesame`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if n.MD5 != 1 {
			t.Error("FRR does not say that the session is authenticated")
		}
	},
}, {
	name: "MD5 over IPv6",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 neighbor fd00:1::1 password sesame
 address-family ipv6 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", asn: 64500, passwordFile: /etc/herald/password}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
	paths: map[string]path{vip6: {ASPath: "64512", NextHop: ip("fd00:1::1")}},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if n.MD5 != 1 {
			t.Error("FRR does not say that the session is authenticated")
		}
	},
}, {
	// That FRR insists on it, and herald too, is shown by TestRefused.
	name: "GTSM",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ttl-security hops 1`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, ttlSecurity: 1}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
}, {
	name: "GTSM over IPv6",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 neighbor fd00:1::1 ttl-security hops 1
 address-family ipv6 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", asn: 64500, ttlSecurity: 1}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
	paths: map[string]path{vip6: {ASPath: "64512", NextHop: ip("fd00:1::1")}},
}, {
	name:   "GTSM over two hops",
	router: "far",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ttl-security hops 2`,
	herald:   `peers: [{address: 10.0.3.1, asn: 64500, ttlSecurity: 2}]`,
	neighbor: "10.0.1.1", peer: "10.0.3.1",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if n.MaxHops != 2 {
			t.Errorf("FRR takes the neighbor to be %d hops away at most, want 2", n.MaxHops)
		}
	},
}, {
	name:   "multihop",
	router: "far",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 ebgp-multihop 2`,
	herald:   `peers: [{address: 10.0.3.1, asn: 64500, multihop: 2}]`,
	neighbor: "10.0.1.1", peer: "10.0.3.1",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if n.MaxHops != 2 {
			t.Errorf("FRR takes the neighbor to be %d hops away at most, want 2", n.MaxHops)
		}
	},
}, {
	name: "IPv6",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 address-family ipv6 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", asn: 64500}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
	paths: map[string]path{vip6: {ASPath: "64512", NextHop: ip("fd00:1::1")}},
}, {
	name: "dual stack over IPv4",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 address-family ipv6 unicast
  neighbor 10.0.1.1 activate`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, families: [ipv4, ipv6]}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{
		vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")},
		vip6: {ASPath: "64512", NextHop: ip("fd00:1::1")},
	},
}, {
	// RFC 8950. FRR begins to advertise the prefix of the link, from which s
	// makes itself a second address, so it has to be told which one to use.
	name: "dual stack over IPv6",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 neighbor fd00:1::1 capability extended-nexthop
 address-family ipv4 unicast
  neighbor fd00:1::1 activate
 exit-address-family
 address-family ipv6 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", localAddress: "fd00:1::1", asn: 64500, families: [ipv4, ipv6]}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
	paths: map[string]path{
		vip4: {ASPath: "64512", NextHop: ip("fd00:1::1")},
		vip6: {ASPath: "64512", NextHop: ip("fd00:1::1")},
	},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if got := n.Capabilities.ExtendedNextHop; got != "advertisedAndReceived" {
			t.Errorf("FRR says %q of the extended next hop", got)
		}
	},
}, {
	name: "IPv4 over IPv6 without extended next hops",
	frr: `
 neighbor fd00:1::1 remote-as 64512
 address-family ipv4 unicast
  neighbor fd00:1::1 activate`,
	herald:   `peers: [{address: "fd00:1::254", asn: 64500, families: [ipv4], nextHop4: 10.0.1.1}]`,
	neighbor: "fd00:1::1", peer: "fd00:1::254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
}, {
	name: "unnumbered",
	frr: `
 neighbor eth1 interface remote-as external
 address-family ipv6 unicast
  neighbor eth1 activate`,
	herald:   `peers: [{interface: eth1, asn: 64500}]`,
	neighbor: "eth1", peer: "eth1",
	paths: map[string]path{
		vip4: {ASPath: "64512", NextHop: ip("fe80::ff:fe00:a")},
		vip6: {ASPath: "64512", NextHop: ip("fe80::ff:fe00:a")},
	},
	check: func(t *testing.T, n neighbor, p admin.Peer) {
		if !p.Address.IsLinkLocalUnicast() || p.Address.Zone() != "eth1" {
			t.Errorf("status has the peer at %v, want its link-local address", p.Address)
		}
		if n.LocalAddress != p.Address.WithZone("").String() {
			t.Errorf("FRR is at %s, the speaker's status says %s", n.LocalAddress, p.Address)
		}
	},
}, {
	name: "iBGP",
	asn:  64512,
	frr: `
 neighbor 10.0.1.1 remote-as 64512`,
	herald: `
localPref: 200
peers: [{address: 10.0.1.254, asn: 64512}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "Local", LocalPref: 200, NextHop: ip("10.0.1.1")}},
}, {
	name: "attributes",
	frr: `
 neighbor 10.0.1.1 remote-as 64512`,
	herald: `
communities: ["64512:100", no-export]
largeCommunities: ["64512:1:2"]
med: 50
peers:
- address: 10.0.1.254
  asn: 64500
  communities: ["64512:7"]
  largeCommunities: ["64512:3:4"]
  med: 70
  prepend: 2`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {
		ASPath: "64512 64512 64512", MED: 70, NextHop: ip("10.0.1.1"),
		Communities: "64512:7 64512:100 no-export", LargeCommunities: "64512:1:2 64512:3:4",
	}},
}, {
	name: "hold time proposed by herald",
	frr: `
 timers bgp 60 180
 neighbor 10.0.1.1 remote-as 64512`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, holdTime: 6s}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: wantHoldTime(6 * time.Second),
}, {
	name: "hold time proposed by FRR",
	frr: `
 timers bgp 3 9
 neighbor 10.0.1.1 remote-as 64512`,
	herald:   `peers: [{address: 10.0.1.254, asn: 64500, holdTime: 90s}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: wantHoldTime(9 * time.Second),
}, {
	// Nothing but FRR's own attempt can succeed.
	name: "opened by FRR",
	frr: `
 neighbor 10.0.1.1 remote-as 64512
 neighbor 10.0.1.1 timers connect 1`,
	herald: `
listen: {}
peers: [{address: 10.0.1.254, asn: 64500, port: 1790}]`,
	neighbor: "10.0.1.1", peer: "10.0.1.254",
	paths: map[string]path{vip4: {ASPath: "64512", NextHop: ip("10.0.1.1")}},
	check: func(t *testing.T, n neighbor, _ admin.Peer) {
		if n.RemotePort != 179 {
			t.Errorf("FRR is connected to port %d, want 179", n.RemotePort)
		}
	},
}}

// wantHoldTime checks that both ends use this hold time, and FRR a keepalive of a third.
func wantHoldTime(want time.Duration) func(*testing.T, neighbor, admin.Peer) {
	return func(t *testing.T, n neighbor, p admin.Peer) {
		t.Helper()
		if ms := int(want.Milliseconds()); n.HoldTime != ms || n.Keepalive != ms/3 {
			t.Errorf("FRR's hold time is %d ms and its keepalive %d ms, want %d and %d", n.HoldTime, n.Keepalive, ms, ms/3)
		}
		if p.HoldTime != want.Seconds() {
			t.Errorf("hold time in status is %v s, want %v", p.HoldTime, want.Seconds())
		}
	}
}

// TestSession brings up every kind of session with FRR, and looks at what FRR
// shows of it and of the routes that it brings.
func TestSession(t *testing.T) {
	for _, test := range sessions {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			router := cmp.Or(test.router, "r1")
			var vips []string
			for vip := range test.paths {
				vips = append(vips, vip)
			}
			s := newSite(t, files{
				router + ".conf":     routerConf(cmp.Or(test.asn, 64500), test.frr),
				"herald/herald.yaml": speakerConf(vips, test.herald),
				"herald/password":    "sesame\n",
			})
			boot(t, s.Lab, router, "s")

			n, p := s.established(t, router, test.neighbor, test.peer)
			if n.RemoteAS != 64512 || n.RouterID != "10.255.0.2" {
				t.Errorf("FRR sees AS %d with router ID %s, want 64512 and 10.255.0.2", n.RemoteAS, n.RouterID)
			}
			if p.Reason != "" {
				t.Errorf("status has something against the session: %s", p.Reason)
			}
			for vip, want := range test.paths {
				got := s.path(t, router, vip)
				if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(path{}, "From"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
					t.Errorf("path to %s (-want +got):\n%s", vip, diff)
				}
			}
			if test.check != nil {
				test.check(t, n, p)
			}
		})
	}
}
