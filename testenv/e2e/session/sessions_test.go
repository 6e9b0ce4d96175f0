//go:build e2e

package session

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// session is a kind of BGP session: the configuration of both ends, and the expected output of
// FRR.
type session struct {
	name string
	// router is the FRR node, r1 if empty, asn its AS number, 64500 if zero, and frr the
	// rest of its bgp section.
	router string
	asn    uint32
	frr    string
	// herald is the speaker's bgp section.
	herald string
	// neighbor is the speaker's name in FRR, peer the router's in the speaker's status:
	// 10.0.1.1 and 10.0.1.254 by default.
	neighbor, peer string
	// bfd repeats the test with BFD, for one hop or multihop.
	bfd, multihop bool
	// paths are FRR's paths to each VIP; nil means the IPv4 one, from the neighbor.
	paths map[string]site.Path
	// check checks the special properties of the session.
	check func(t *testing.T, n site.Neighbor, p bgp.Session)
}

// overIPv6 is the result of a session over IPv6.
var overIPv6 = map[string]site.Path{site.VIP6: {ASPath: "64512", NextHop: site.IP("fd00:1::1")}}

// activate makes FRR give a neighbor the routes of a family.
func activate(family, neighbor string) string {
	return "\n address-family " + family + " unicast\n  neighbor " + neighbor + " activate\n exit-address-family"
}

var sessions = []session{
	{name: "MD5", bfd: true, check: wantMD5,
		frr: " neighbor 10.0.1.1 password sesame", herald: `peers: [{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}]`},
	{name: "MD5 over IPv6", neighbor: "fd00:1::1", peer: "fd00:1::254", paths: overIPv6, check: wantMD5,
		frr:    " neighbor fd00:1::1 password sesame" + activate("ipv6", "fd00:1::1"),
		herald: `peers: [{address: "fd00:1::254", asn: 64500, passwordFile: /etc/herald/password}]`},
	// TestRefused shows that FRR, and herald too, insists on it.
	{name: "GTSM", bfd: true, multihop: true,
		frr: " neighbor 10.0.1.1 ttl-security hops 1", herald: `peers: [{address: 10.0.1.254, asn: 64500, ttlSecurity: 1}]`},
	{name: "GTSM over IPv6", neighbor: "fd00:1::1", peer: "fd00:1::254", paths: overIPv6,
		frr:    " neighbor fd00:1::1 ttl-security hops 1" + activate("ipv6", "fd00:1::1"),
		herald: `peers: [{address: "fd00:1::254", asn: 64500, ttlSecurity: 1}]`},
	{name: "GTSM over two hops", router: "far", peer: "10.0.3.1", bfd: true, multihop: true, check: wantTwoHops,
		frr: " neighbor 10.0.1.1 ttl-security hops 2", herald: `peers: [{address: 10.0.3.1, asn: 64500, ttlSecurity: 2}]`},
	{name: "multihop", router: "far", peer: "10.0.3.1", bfd: true, multihop: true, check: wantTwoHops,
		frr: " neighbor 10.0.1.1 ebgp-multihop 2", herald: `peers: [{address: 10.0.3.1, asn: 64500, multihop: 2}]`},
	{name: "IPv6", neighbor: "fd00:1::1", peer: "fd00:1::254", bfd: true, paths: overIPv6,
		frr: activate("ipv6", "fd00:1::1"), herald: `peers: [{address: "fd00:1::254", asn: 64500}]`},
	{name: "dual stack over IPv4", paths: both("10.0.1.1", "fd00:1::1"),
		frr: activate("ipv6", "10.0.1.1"), herald: `peers: [{address: 10.0.1.254, asn: 64500, families: [ipv4, ipv6]}]`},
	// RFC 8950. FRR begins to advertise the prefix of the link, and s makes itself a
	// second address from it, so its address has to be configured.
	{name: "dual stack over IPv6", neighbor: "fd00:1::1", peer: "fd00:1::254", paths: both("fd00:1::1", "fd00:1::1"),
		frr:    " neighbor fd00:1::1 capability extended-nexthop" + activate("ipv4", "fd00:1::1") + activate("ipv6", "fd00:1::1"),
		herald: `peers: [{address: "fd00:1::254", localAddress: "fd00:1::1", asn: 64500, families: [ipv4, ipv6]}]`,
		check: func(t *testing.T, n site.Neighbor, _ bgp.Session) {
			if got := n.Capabilities.ExtendedNextHop; got != "advertisedAndReceived" {
				t.Errorf("FRR reports %q for the extended next hop", got)
			}
		}},
	{name: "IPv4 over IPv6 without extended next hops", neighbor: "fd00:1::1", peer: "fd00:1::254",
		frr: activate("ipv4", "fd00:1::1"), herald: `peers: [{address: "fd00:1::254", asn: 64500, families: [ipv4], nextHop4: 10.0.1.1}]`},
	{name: "unnumbered", neighbor: "eth1", peer: "eth1", bfd: true, paths: both("fe80::ff:fe00:a", "fe80::ff:fe00:a"),
		frr: " neighbor eth1 interface remote-as external" + activate("ipv6", "eth1"), herald: `peers: [{interface: eth1, asn: 64500}]`,
		check: func(t *testing.T, n site.Neighbor, p bgp.Session) {
			if !p.Address.IsLinkLocalUnicast() || p.Address.Zone() != "eth1" {
				t.Errorf("status shows the peer at %v, want its link-local address", p.Address)
			}
			if n.LocalAddress != p.Address.WithZone("").String() {
				t.Errorf("FRR is at %s, the speaker's status shows %s", n.LocalAddress, p.Address)
			}
		}},
	{name: "iBGP", asn: 64512, bfd: true, herald: "localPref: 200\npeers: [{address: 10.0.1.254, asn: 64512}]",
		paths: map[string]site.Path{site.VIP4: {ASPath: "Local", LocalPref: 200, NextHop: site.IP("10.0.1.1")}}},
	{name: "attributes", herald: `
communities: ["64512:100", no-export]
largeCommunities: ["64512:1:2"]
med: 50
peers:
- {address: 10.0.1.254, asn: 64500, communities: ["64512:7"], largeCommunities: ["64512:3:4"], med: 70, prepend: 2}`,
		paths: map[string]site.Path{site.VIP4: {
			ASPath: "64512 64512 64512", MED: 70, NextHop: site.IP("10.0.1.1"),
			Communities: "64512:7 64512:100 no-export", LargeCommunities: "64512:1:2 64512:3:4",
		}}},
	{name: "hold time proposed by herald", check: wantHoldTime(6 * time.Second),
		frr: " timers bgp 60 180", herald: `peers: [{address: 10.0.1.254, asn: 64500, holdTime: 6s}]`},
	{name: "hold time proposed by FRR", check: wantHoldTime(9 * time.Second),
		frr: " timers bgp 3 9", herald: `peers: [{address: 10.0.1.254, asn: 64500, holdTime: 90s}]`},
	// Only FRR's own attempt can succeed.
	{name: "opened by FRR", frr: " neighbor 10.0.1.1 timers connect 1", herald: "listen: {}\npeers: [{address: 10.0.1.254, asn: 64500, port: 1790}]",
		check: func(t *testing.T, n site.Neighbor, _ bgp.Session) {
			if n.RemotePort != 179 {
				t.Errorf("FRR is connected to port %d, want 179", n.RemotePort)
			}
		}},
}

// both returns the paths of a dual-stack session.
func both(hop4, hop6 string) map[string]site.Path {
	return map[string]site.Path{
		site.VIP4: {ASPath: "64512", NextHop: site.IP(hop4)}, site.VIP6: {ASPath: "64512", NextHop: site.IP(hop6)},
	}
}

// wantMD5 checks that the session is authenticated.
func wantMD5(t *testing.T, n site.Neighbor, _ bgp.Session) {
	if n.MD5 != 1 {
		t.Error("FRR does not say that the session is authenticated")
	}
}

// wantTwoHops checks that FRR allows the neighbor to be two hops away.
func wantTwoHops(t *testing.T, n site.Neighbor, _ bgp.Session) {
	if n.MaxHops != 2 {
		t.Errorf("FRR allows the neighbor to be %d hops away, want 2", n.MaxHops)
	}
}

// wantHoldTime checks that both ends use this hold time, and FRR a keepalive of a third.
func wantHoldTime(want time.Duration) func(*testing.T, site.Neighbor, bgp.Session) {
	return func(t *testing.T, n site.Neighbor, p bgp.Session) {
		t.Helper()
		if ms := int(want.Milliseconds()); n.HoldTime != ms || n.Keepalive != ms/3 {
			t.Errorf("FRR's hold time is %d ms and its keepalive %d ms, want %d and %d", n.HoldTime, n.Keepalive, ms, ms/3)
		}
		if p.HoldTime.Seconds() != want.Seconds() {
			t.Errorf("hold time in status is %v s, want %v", p.HoldTime.Seconds(), want.Seconds())
		}
	}
}

// TestSession brings up every kind of session with FRR, and checks FRR's view of the
// session and its routes.
func TestSession(t *testing.T) {
	for _, test := range sessions {
		test.neighbor, test.peer = cmp.Or(test.neighbor, "10.0.1.1"), cmp.Or(test.peer, "10.0.1.254")
		t.Run(test.name, test.run)
		if test.bfd {
			test.frr += fmt.Sprintf("\n neighbor %s bfd 3 300 300", test.neighbor)
			test.herald = strings.Replace(test.herald, "}]", ", bfd: {interval: 300ms}}]", 1)
			t.Run(test.name+" with BFD", test.run)
		}
	}
}

func (test session) run(t *testing.T) {
	t.Parallel()
	router := cmp.Or(test.router, "r1")
	if test.paths == nil {
		test.paths = map[string]site.Path{site.VIP4: {ASPath: "64512", NextHop: site.IP("10.0.1.1")}}
	}
	if test.neighbor != "eth1" {
		test.frr = " neighbor " + test.neighbor + " remote-as 64512\n" + test.frr
	}
	s := site.NewSession(t, site.Files{
		router + ".conf":     site.RouterConf(cmp.Or(test.asn, 64500), test.frr),
		"herald/herald.yaml": site.SpeakerConf(slices.Collect(maps.Keys(test.paths)), test.herald),
		"herald/password":    "sesame\n",
	})
	site.Boot(t, s.Lab, router, "s")

	n, _ := s.Established(t, router, test.neighbor, test.peer)
	if n.RemoteAS != 64512 || n.RouterID != "10.255.0.2" {
		t.Errorf("FRR sees AS %d with router ID %s, want 64512 and 10.255.0.2", n.RemoteAS, n.RouterID)
	}
	if strings.Contains(test.herald, "bfd:") {
		watchedAs(t, s, router, test.peer, test.multihop)
	}
	for vip, want := range test.paths {
		got := s.Path(t, router, vip)
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(site.Path{}, "From"), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("path to %s (-want +got):\n%s", vip, diff)
		}
	}
	p := site.Get[bgp.Session](t)(s.Peer(t, test.peer))
	if p.Reason != "" {
		t.Errorf("status complains about the session: %s", p.Reason)
	}
	if test.check != nil {
		test.check(t, n, p)
	}
}

// TestRefused misconfigures one of two peers in every way: its session never comes up,
// status reports the expected reason, and the other session is untouched.
func TestRefused(t *testing.T) {
	const right = "\n neighbor 10.0.1.1 remote-as 64512\n neighbor 10.0.1.1 timers connect 1"
	for _, test := range []struct {
		name string
		// frr is r1's bgp section; r1 is not booted if it is empty. peer is the speaker's entry for the
		// peer.
		frr, peer string
		// reason is a regular expression for the reason in status.
		reason string
		// oneSided marks a session that herald may consider up: it receives from the peer,
		// but not vice versa.
		oneSided bool
	}{
		{"wrong password", right + "\n neighbor 10.0.1.1 password sesame", `{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}`, `10\.0\.1\.254 does not answer.*its password differs from passwordFile`, false},
		{"password that the peer does not have", right, `{address: 10.0.1.254, asn: 64500, passwordFile: /etc/herald/password}`, `its password differs from passwordFile`, false},
		{"password that only the peer has", right + "\n neighbor 10.0.1.1 password sesame", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 does not answer.*it expects a password`, false},
		{"wrong ASN of the peer", right, `{address: 10.0.1.254, asn: 64501}`, `the peer's ASN is 64500, not 64501`, false},
		{"wrong ASN at the peer", "\n neighbor 10.0.1.1 remote-as 64513", `{address: 10.0.1.254, asn: 64500}`, `expects another ASN than 64512.*(?i)bad peer as`, false},
		{"unknown to the peer", "\n neighbor 10.0.1.77 remote-as 64512", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 closes the connection from 10\.0\.1\.1 without a NOTIFICATION.*neighbor`, false},
		{"GTSM that only the peer has", right + "\n neighbor 10.0.1.1 ttl-security hops 1", `{address: 10.0.1.254, asn: 64500}`, `hold timer expired|accepts the connection but does not answer an OPEN`, true},
		{"GTSM that the peer does not have", right, `{address: 10.0.1.254, asn: 64500, ttlSecurity: 1}`, `10\.0\.1\.254 accepts the connection but does not answer.*ttlSecurity`, false},
		{"no family in common", right + "\n address-family ipv4 unicast\n  no neighbor 10.0.1.1 activate\n exit-address-family\n address-family ipv6 unicast\n  neighbor 10.0.1.1 activate", `{address: 10.0.1.254, asn: 64500}`, `the peer refuses`, false},
		{"no BGP at the peer", "", `{address: 10.0.1.254, asn: 64500}`, `10\.0\.1\.254 refuses TCP port 179`, false},
		{"an unused address", "", `{address: 10.0.1.77, asn: 64500}`, `10\.0\.1\.77 is unreachable`, false},
		// FRR sends router advertisements only with an unnumbered session
		{"no router on the link", right, `{interface: eth1, asn: 64500}`, `no router advertisement received on eth1`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := site.NewSession(t, site.Files{
				"r1.conf":            site.RouterConf(64500, test.frr),
				"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4}, "peers:\n- "+test.peer+"\n- {address: 10.0.2.254, asn: 64500}"),
				"herald/password":    "abracadabra\n",
			})
			site.Boot(t, s.Lab, "r2", "s")
			if test.frr != "" {
				site.Boot(t, s.Lab, "r1")
			}
			s.Established(t, "r2", "10.0.2.1", "10.0.2.254")

			s.Shows(t, func(status admin.Status) error {
				for _, p := range status.Peers {
					if p.Name == "10.0.2.254" {
						continue
					}
					if !test.oneSided && (p.State == "established" || p.Drops > 0 || len(p.Advertised) > 0) {
						t.Fatalf("the session came up: %+v", p)
					}
					return site.ErrorIf(!regexp.MustCompile(test.reason).MatchString(p.Reason),
						"status has the reason %q, want %q", p.Reason, test.reason)
				}
				return errors.New("the peer is not in status")
			})

			if strings.Contains(test.frr, "10.0.1.1 ") {
				n := site.Get[site.Neighbor](t)(s.Router("r1").Neighbor(t, "10.0.1.1"))
				if n.Established != 0 || n.State == "Established" {
					t.Errorf("FRR reports that the session was up %d times and is %s now", n.Established, n.State)
				}
			}
			onceUp(t, s, "r2", "10.0.2.1")
			s.Path(t, "r2", site.VIP4)
		})
	}
}

// TestDefaultGateway has a master with its default gateways as peers, of any AS. They
// follow the default routes of both families from r1 to r2, the new one before the old
// one goes, and then to nowhere.
func TestDefaultGateway(t *testing.T) {
	t.Parallel()
	const router = `
 neighbor 10.0.1.1 remote-as 64512
 neighbor fd00:1::1 remote-as 64512
 address-family ipv6 unicast
  neighbor fd00:1::1 activate
 exit-address-family`
	s := site.NewSession(t, site.Files{
		"r1.conf": site.RouterConf(64500, router),
		"r2.conf": site.RouterConf(4200000002, strings.NewReplacer("10.0.1.1", "10.0.2.1", "fd00:1::1", "fd00:2::1").Replace(router)),
		"herald/herald.yaml": site.SpeakerConf([]string{site.VIP4, site.VIP6},
			"peers:\n- {defaultGateway: ipv4, asn: external}\n- {defaultGateway: ipv6, asn: external}"),
	})
	site.Boot(t, s.Lab, "r1", "r2", "s")
	route := func(argv ...string) {
		t.Helper()
		for _, family := range []struct{ version, old, next string }{{"-4", "10.0.N.254", ""}, {"-6", "fd00:N::254", ""}} {
			command := []string{"ip", family.version, "route", argv[0], "default"}
			if len(argv) > 1 {
				command = append(command, "via", strings.Replace(family.old, "N", argv[1], 1))
			}
			_, err := s.Node("s").Run(t.Context(), command...)
			site.Must(t, err)
		}
	}
	waits := func() {
		t.Helper()
		for _, peer := range []string{"default-ipv4", "default-ipv6"} {
			s.ShowsPeer(t, peer, func(p bgp.Session) error {
				return site.ErrorIf(p.State != "waiting" || p.Reason == "", "status has %s %s, because %q", peer, p.State, p.Reason)
			})
		}
	}
	waits()

	route("add", "1")
	for _, vip := range []string{site.VIP4, site.VIP6} {
		s.Path(t, "r1", vip)
	}
	for _, peer := range []string{"10.0.1.254", "fd00:1::254"} {
		if p, err := s.Peer(t, peer); err != nil || p.ASN != 64500 {
			t.Errorf("status has the peer %s with AS %d (%v), want 64500", peer, p.ASN, err)
		}
	}

	old, next := site.WatchRoutes(t, s.Node("r1")), site.WatchRoutes(t, s.Node("r2"))
	route("replace", "2")
	for _, vip := range []string{site.VIP4, site.VIP6} {
		if p := s.Path(t, "r2", vip); p.ASPath != "64512" {
			t.Errorf("r2 has %s by the path %q, want 64512", vip, p.ASPath)
		}
		s.NoPath(t, "r1", vip)
		site.Eventually(t, site.Soon, func() error { // bgpd knows before the kernel does
			return site.ErrorIf(len(old.Steps(vip)) == 0, "r1 has not changed its route to %s", vip)
		})
		lost, got := old.Steps(vip), next.Steps(vip)
		if len(lost) != 1 || len(got) != 1 || got[0].At.After(lost[0].At) {
			t.Errorf("%s: r1 changed its route %v, r2 %v: want r2 to have it, then r1 to lose it", vip, lost, got)
			continue
		}
		t.Logf("%s: r2 had the route %v before r1 lost it", vip, lost[0].At.Sub(got[0].At).Round(time.Millisecond))
	}

	route("del")
	for _, vip := range []string{site.VIP4, site.VIP6} {
		s.NoPath(t, "r2", vip)
	}
	waits()
}
