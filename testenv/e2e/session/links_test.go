//go:build e2e

package session

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/lab"
)

// TestLinkDown takes the link to one of two routers away, in every way: its route
// goes, the other router is not touched, and everything is back when the link is.
func TestLinkDown(t *testing.T) {
	for name, fault := range map[string]func(*lab.Link) error{
		"carrier lost":     (*lab.Link).Down,
		"silent":           (*lab.Link).Cut,
		"silent to router": func(l *lab.Link) error { return l.CutFrom("s") },
		"silent to s":      func(l *lab.Link) error { return l.CutFrom("r1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAnnouncingSite(t, nil)
			calm, routes, link := watchBystander(t, s), site.WatchRoutes(t, s.Node("r1")), s.Link("s", "r1")

			made := time.Now()
			site.Must(t, fault(link))
			onlyOn(t, s, "r2")
			down(t, s, "10.0.1.254")
			t.Logf("route gone after %v", routes.GoneAfter(made))

			healed := time.Now()
			site.Must(t, link.Heal())
			announced(t, s)
			t.Logf("announced again %v after the link was back", time.Since(healed).Round(site.Poll))
			calm.untouched(t)
		})
	}
}

// TestLinkFlaps makes one link lose its carrier 20 times in a row, then both at once for a while.
func TestLinkFlaps(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	first, other := s.Link("s", "r1"), s.Link("s", "r2")
	for range 20 {
		site.Must(t, first.Down())
		site.Must(t, first.Heal())
	}
	announced(t, s)
	calm.untouched(t)

	site.Must(t, first.Down())
	site.Must(t, other.Down())
	onlyOn(t, s)
	for _, p := range plainPeers {
		down(t, s, p.peer)
	}
	s.HasAddress(t, site.VIP4, true) // s is healthy, and its own clients reach it
	site.Must(t, first.Heal())
	site.Must(t, other.Heal())
	announced(t, s)
}

// TestLinkSetDown sets the link to one router down and up again, as an administrator
// does, and then lo, which has the addresses and the checked apiserver.
func TestLinkSetDown(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := watchBystander(t, s)
	site.Shell(t, s.Node("s"), "ip link set eth1 down")
	onlyOn(t, s, "r2")
	site.Shell(t, s.Node("s"), "ip link set eth1 up")
	announced(t, s)
	calm.untouched(t)

	site.Shell(t, s.Node("s"), "ip link set lo down")
	onlyOn(t, s)
	site.Shell(t, s.Node("s"), "ip link set lo up")
	announced(t, s)
}
