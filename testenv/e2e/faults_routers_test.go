//go:build e2e

package e2e

import (
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
