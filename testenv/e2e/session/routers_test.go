//go:build e2e

package session

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestRouterLosesPower cuts the power of one of two routers and restores it: the other
// one is not touched.
func TestRouterLosesPower(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	cut := time.Now()
	site.Must(t, s.Node("r1").PowerOff())
	down(t, s, "10.0.1.254")
	t.Logf("session down %v after the power", time.Since(cut).Round(site.Poll))

	site.PowerOn(t, s.Node("r1"))
	booted := time.Now()
	announced(t, s)
	t.Logf("announced %v after the router was up", time.Since(booted).Round(site.Poll))
	calm.untouched(t)
}

// TestRouterFreezes freezes the bgpd of one of two routers: the session ends with the
// hold time and the other router is not touched. If the apiserver dies meanwhile, the
// VIP is withdrawn from the other router as usual, and from the frozen one as soon as
// it continues.
func TestRouterFreezes(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	bgpd := s.Node("r1").Daemon("bgpd")
	frozen := time.Now()
	site.Must(t, bgpd.Freeze())
	down(t, s, "10.0.1.254")
	t.Logf("session down after %v", time.Since(frozen).Round(site.Poll))
	calm.untouched(t)

	died := time.Now()
	s.ApiserverDies()
	onlyOn(t, s, "r1") // where no process is left to remove the route
	s.HasAddress(t, site.VIP4, false)
	t.Logf("the other router's route gone after %v", calm.routes.GoneAfter(died))
	site.Must(t, bgpd.Thaw())
	withdrawn(t, s)
	s.ApiserverStarts(t)
	announced(t, s)
}

// TestRouteFiltered makes a router refuse the route. Status still reports the
// advertised route, but also that clients behind this router do not reach the VIP, and
// counts connections through the other router.
func TestRouteFiltered(t *testing.T) {
	t.Parallel()
	s := site.NewSession(t, site.Files{"r1.conf": site.RouterConf(64500, site.PlainRouter+"\n neighbor 10.0.1.1 prefix-list nothing in\nexit\nip prefix-list nothing deny any")})
	site.Boot(t, s.Lab, "r1", "r2", "s")
	s.Established(t, "r1", "10.0.1.1", "10.0.1.254")
	s.Established(t, "r2", "10.0.2.1", "10.0.2.254")
	onlyOn(t, s, "r2")
	s.ShowsPeer(t, "10.0.1.254", func(p bgp.Session) error {
		return site.ErrorIf(!slices.Contains(p.Advertised, site.HostPrefix(site.VIP4)), "status shows %v as advertised to r1, want the VIP among them", p.Advertised)
	})
	for router, want := range map[string]bool{"r1": false, "r2": true} {
		conn, err := s.Node(router).DialContext(t.Context(), "tcp", site.VIP4+":6443")
		if (err == nil) != want {
			t.Errorf("connecting from %s: %v, want success: %t", router, err, want)
		}
		if err == nil {
			conn.Close()
		}
	}
	s.Shows(t, func(status admin.Status) error {
		a := status.VIPs[0].Arrivals
		return site.ErrorIf(a == nil || a.Arrived == 0, "status counts %+v, want the connection of r2", a)
	})
}
