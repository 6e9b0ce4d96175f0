package services

import (
	"context"
	"net/netip"
	"time"

	cluster "github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// within bounds every wait.
const within = 10 * time.Minute

// probeService is the Service with an endpoint on n1 that comes and goes; its endpoint on n2
// stays.
const probeService = "probe"

// bgpPart measures changes of one Service's endpoint, and planned changes of a node.
func (s *stage) bgpPart(ctx context.Context) {
	s.createProbe(ctx)
	s.flips(ctx, 1)
	s.planned(ctx, cluster.PoolBGP)
}

// create creates a Service and returns its address.
func (s *stage) create(ctx context.Context, service cluster.Service) netip.Addr {
	step.Do(s.Create(ctx, service))
	return step.Get(s.AddressOf(ctx, service.Name))
}

// createProbe creates the probe Service and waits for its route.
func (s *stage) createProbe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip := s.create(ctx, cluster.Service{Name: probeService, Pool: cluster.PoolBGP, Local: true, Endpoints: []string{"n1", "n2"}})
	s.have = 1
	step.Get(s.routes.AwaitHops(ctx, vip, s.Address("n1"), s.Address("n2")))
}

// flips repeatedly removes and restores the probe's endpoint on n1, among this many
// Services. It records how long it took until the router was told, and had the route
// in its kernel.
func (s *stage) flips(ctx context.Context, size int) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip := step.Get(s.AddressOf(ctx, probeService))
	n1, n2 := s.Address("n1"), s.Address("n2")
	for range s.trials {
		for _, flip := range []struct {
			name       string
			conditions cluster.Conditions
			hops       []netip.Addr
		}{{"unready", cluster.NotReady(), []netip.Addr{n2}}, {"ready", cluster.Ready(), []netip.Addr{n1, n2}}} {
			// So that the router is at rest, and trials don't fall into step with its timers.
			step.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond)
			s.wire.Mark()
			s.routes.Mark()
			at := time.Now()
			step.Do(s.SetEndpoint(ctx, probeService, "n1", flip.conditions))
			installed := step.Get(s.routes.AwaitHops(ctx, vip, flip.hops...))
			if h, ok := s.wire.First(n1); ok {
				s.note("endpoint "+flip.name+", until the router is told", size, "ms", h.At.Sub(at).Seconds()*1e3)
			}
			s.note("endpoint "+flip.name+", until the router's kernel has the route", size, "ms", installed.Sub(at).Seconds()*1e3)
		}
	}
}

// curvePart measures the cost of one change of an endpoint among increasing numbers of Services.
func (s *stage) curvePart(ctx context.Context) {
	s.createProbe(ctx)
	for _, n := range s.curve {
		s.grow(ctx, n, false)
		s.size(ctx, n)
		idle := s.spent(func() { step.Pause(ctx, min(s.quiet, 5*time.Second)) })
		busy := s.spent(func() { s.flips(ctx, n) })
		share := idle.cpu.Seconds() / idle.took.Seconds()
		s.note("one change of an endpoint, CPU of all nodes", n, "ms", max(0, busy.cpu.Seconds()-share*busy.took.Seconds())/float64(2*s.trials)*1e3)
	}
}
