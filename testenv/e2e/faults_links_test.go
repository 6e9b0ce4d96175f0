//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// TestLinkDown takes the link to one of two routers away, in every way: its
// route goes, the other router is not touched, and all is back when the link is.
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
			calm, routes, link := s.bystander(t), record(t, s.Node("r1")), s.Link("s", "r1")

			made := time.Now()
			must(t, fault(link))
			s.onlyOn(t, "r2")
			s.down(t, "10.0.1.254")
			t.Logf("route gone after %v", routes.goneAfter(made))

			healed := time.Now()
			must(t, link.Heal())
			s.announced(t)
			t.Logf("announced again %v after the link was back", time.Since(healed).Round(poll))
			calm.untouched(t)
		})
	}
}

// TestLinkFlaps has one link lose its carrier 20 times in a row, then both at once for a while.
func TestLinkFlaps(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := s.bystander(t)
	one, other := s.Link("s", "r1"), s.Link("s", "r2")
	for range 20 {
		must(t, one.Down())
		must(t, one.Heal())
	}
	s.announced(t)
	calm.untouched(t)

	must(t, one.Down())
	must(t, other.Down())
	s.onlyOn(t)
	for _, p := range plainPeers {
		s.down(t, p.peer)
	}
	s.hasAddress(t, vip4, true) // s is healthy, and its own clients reach it
	must(t, one.Heal())
	must(t, other.Heal())
	s.announced(t)
}

// TestLinkSetDown has an administrator set the link to one router down and up
// again, and then lo: there the addresses are, and the apiserver that the check asks.
func TestLinkSetDown(t *testing.T) {
	t.Parallel()
	s := newAnnouncingSite(t, nil)
	calm := s.bystander(t)
	shell(t, s.Node("s"), "ip link set eth1 down")
	s.onlyOn(t, "r2")
	shell(t, s.Node("s"), "ip link set eth1 up")
	s.announced(t)
	calm.untouched(t)

	shell(t, s.Node("s"), "ip link set lo down")
	s.onlyOn(t)
	shell(t, s.Node("s"), "ip link set lo up")
	s.announced(t)
}
