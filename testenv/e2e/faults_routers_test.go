//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"
)

// TestRouterLosesPower cuts the power of one of two routers and gives it back:
// the other one is not touched.
func TestRouterLosesPower(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := s.bystander(t)
	cut := time.Now()
	must(t, s.Node("r1").PowerOff())
	s.down(t, "10.0.1.254")
	t.Logf("session down %v after the power", time.Since(cut).Round(poll))

	must(t, s.Node("r1").PowerOn(t.Context()))
	booted := time.Now()
	s.announced(t)
	t.Logf("announced %v after the router was up", time.Since(booted).Round(poll))
	calm.untouched(t)
}

// TestRouterFreezes freezes the bgpd of one of two routers: the session ends
// with the hold time and the other router is not touched. An apiserver that
// dies meanwhile is withdrawn from the other router as ever, and from the
// frozen one as soon as it runs on.
func TestRouterFreezes(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := s.bystander(t)
	bgpd := s.Node("r1").Daemon("bgpd")
	frozen := time.Now()
	must(t, bgpd.Freeze())
	s.down(t, "10.0.1.254")
	t.Logf("session down after %v", time.Since(frozen).Round(poll))
	calm.untouched(t)

	died := time.Now()
	s.apiserverDies()
	s.onlyOn(t, "r1") // where nobody is left to take the route away
	s.hasAddress(t, vip4, false)
	t.Logf("the other router's route gone after %v", calm.routes.goneAfter(died))
	must(t, bgpd.Thaw())
	s.withdrawn(t)
	s.apiserverStarts(t)
	s.announced(t)
}

// TestRouteFiltered has a router refuse the route: status says what it was sent
// nevertheless, and whoever tries from there finds that the VIP is not reached.
func TestRouteFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t, files{"r1.conf": routerConf(64500, plainRouter+"\n neighbor 10.0.1.1 prefix-list nothing in\nexit\nip prefix-list nothing deny any")})
	boot(t, s.Lab, "r1", "r2", "s")
	s.established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.established(t, "r2", "10.0.2.1", "10.0.2.254")
	s.onlyOn(t, "r2")
	p, err := s.peer(t, "10.0.1.254")
	must(t, err)
	if !slices.Contains(p.Advertised, hostPrefix(vip4)) {
		t.Errorf("status says that r1 was sent %v, want the VIP among them", p.Advertised)
	}
	for router, want := range map[string]bool{"r1": false, "r2": true} {
		conn, err := s.Node(router).DialContext(t.Context(), "tcp", vip4+":6443")
		if (err == nil) != want {
			t.Errorf("connecting from %s: %v, want success: %t", router, err, want)
		}
		if err == nil {
			conn.Close()
		}
	}
}
