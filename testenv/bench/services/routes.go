package services

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	cluster "github.com/herald-vip/herald/testenv/services"
)

// within bounds every wait.
const within = 10 * time.Minute

// probeService is the Service with an endpoint on n1 that comes and goes; its endpoint on n2
// stays.
const probeService = "probe"

// bgpPart measures changes of one Service's endpoint, and planned changes of a node.
func (s *stage) bgpPart(ctx context.Context) error {
	if err := s.createProbe(ctx); err != nil {
		return err
	}
	if err := s.flips(ctx, 1); err != nil {
		return err
	}
	return s.planned(ctx, cluster.PoolBGP)
}

// createProbe creates the probe Service and waits for its route.
func (s *stage) createProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.Create(ctx, cluster.Service{Name: probeService, Pool: cluster.PoolBGP, Local: true, Endpoints: []string{"n1", "n2"}}); err != nil {
		return err
	}
	vip, err := s.AddressOf(ctx, probeService)
	if err != nil {
		return err
	}
	s.have = 1
	_, err = s.routes.AwaitHops(ctx, vip, s.Address("n1"), s.Address("n2"))
	return err
}

// flips repeatedly removes and restores the probe's endpoint on n1, among this many
// Services. It records how long it took until the router was told, and had the route
// in its kernel.
func (s *stage) flips(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip, err := s.AddressOf(ctx, probeService)
	if err != nil {
		return err
	}
	n1, n2 := s.Address("n1"), s.Address("n2")
	for range s.trials {
		for _, flip := range []struct {
			name       string
			conditions cluster.Conditions
			hops       []netip.Addr
		}{{"unready", cluster.NotReady(), []netip.Addr{n2}}, {"ready", cluster.Ready(), []netip.Addr{n1, n2}}} {
			// So that the router is at rest, and trials don't fall into step with its timers.
			if err := observe.Pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond); err != nil {
				return err
			}
			s.wire.Mark()
			s.routes.Mark()
			at := time.Now()
			if err := s.SetEndpoint(ctx, probeService, "n1", flip.conditions); err != nil {
				return err
			}
			installed, err := s.routes.AwaitHops(ctx, vip, flip.hops...)
			if err != nil {
				return err
			}
			if h, ok := s.wire.First(n1); ok {
				s.note("endpoint "+flip.name+", until the router is told", size, "ms", h.At.Sub(at).Seconds()*1e3)
			}
			s.note("endpoint "+flip.name+", until the router's kernel has the route", size, "ms", installed.Sub(at).Seconds()*1e3)
		}
	}
	return nil
}

// curvePart measures the cost of one change of an endpoint among increasing numbers of Services.
func (s *stage) curvePart(ctx context.Context) error {
	if err := s.createProbe(ctx); err != nil {
		return err
	}
	for _, n := range s.curve {
		if err := errors.Join(s.grow(ctx, n, false), s.size(ctx, n)); err != nil {
			return err
		}
		idle, err := s.spent(func() error { return observe.Pause(ctx, min(s.quiet, 5*time.Second)) })
		if err != nil {
			return err
		}
		busy, err := s.spent(func() error { return s.flips(ctx, n) })
		if err != nil {
			return err
		}
		share := idle.cpu.Seconds() / idle.took.Seconds()
		s.note("one change of an endpoint, CPU of all nodes", n, "ms", max(0, busy.cpu.Seconds()-share*busy.took.Seconds())/float64(2*s.trials)*1e3)
	}
	return nil
}
