//go:build e2e

package session

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

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
