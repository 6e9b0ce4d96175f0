package services

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/routes"
	cluster "github.com/herald-vip/herald/testenv/services"
)

// growthPart measures the resources for increasing numbers of Services.
func (s *stage) growthPart(ctx context.Context) error {
	if err := s.createProbe(ctx); err != nil {
		return err
	}
	if err := s.size(ctx, s.sizes[0]); err != nil {
		return err
	}
	for i, n := range s.sizes[1:] {
		if err := s.grow(ctx, n, i > 0); err != nil {
			return err
		}
		if err := s.size(ctx, n); err != nil {
			return err
		}
		if err := s.restarts(ctx, n); err != nil {
			return err
		}
	}
	return s.steadyRequests(ctx, s.sizes[len(s.sizes)-1])
}

// filler returns a Service that never changes.
func (s *stage) filler(i int) cluster.Service {
	return cluster.Service{Name: fmt.Sprintf("s%05d", i), Pool: cluster.PoolBGP, Endpoints: s.Members()}
}

// grow creates Services until there are n with the probe, and waits until the router
// reaches them all over all nodes. It records the time and cost if tell is set.
func (s *stage) grow(ctx context.Context, n int, tell bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list []cluster.Service
	for ; s.have < n; s.have++ {
		list = append(list, s.filler(s.have))
	}
	var began, created, done time.Time
	spent, err := s.spent(func() error {
		began = time.Now()
		if err := s.Create(ctx, list...); err != nil {
			return err
		}
		created = time.Now()
		if err := s.routes.Await(ctx, func(v routes.View) bool { return s.complete(v, n) }); err != nil {
			return err
		}
		done = time.Now()
		// An announcer's later writes to its own records count too.
		return observe.Pause(ctx, min(s.quiet, 3*time.Second))
	})
	if err != nil {
		return err
	}
	s.note("growth: the API server takes the Services", n, "s", created.Sub(began).Seconds())
	s.note("growth: from the last Service until the router has all routes", n, "s", max(0, done.Sub(created).Seconds()))
	s.note("growth: CPU of all nodes", n, "s", spent.cpu.Seconds())
	if tell {
		events := spent.count(func(r request) bool { return r.writes() && r.concerns("events") })
		all := spent.count(func(r request) bool { return r.writes() && !r.concerns("leases") })
		s.note("growth: writes for each Service", n, "requests", (all-events)/float64(len(list)))
		s.note("growth: events for each Service", n, "requests", events/float64(len(list)))
	}
	return nil
}

// complete reports whether the router has a route to n Services, and over every node
// all except the probe's, which is on two.
func (s *stage) complete(v routes.View, n int) bool {
	if v.Prefixes() < n {
		return false
	}
	return !slices.ContainsFunc(s.Members(), func(m string) bool { return v.Through(s.Address(m)) < n-1 })
}

// size records the memory at this number of Services.
func (s *stage) size(ctx context.Context, n int) error {
	if err := observe.Pause(ctx, s.quiet); err != nil {
		return err
	}
	speakers, controllers := s.programs()
	for i, programs := range [][]*lab.Process{speakers, controllers} {
		for _, p := range programs {
			v, err := observe.Resident(p.Pid())
			if err != nil {
				return err
			}
			s.note([]string{"memory of each speaker", "memory of the controller"}[i], n, "MB", v*1e-6)
		}
	}
	return nil
}

// restarts stops the speaker of n3, and measures how long after a new start the router
// has all routes over it again.
func (s *stage) restarts(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const node = "n3"
	hop := s.Address(node)
	for number := range s.rests {
		if err := s.Speaker(node).Stop(ctx); err != nil {
			return err
		}
		if err := s.routes.Await(ctx, func(v routes.View) bool { return v.Through(hop) == 0 }); err != nil {
			return err
		}
		// A router that lost a session takes a moment to accept another. It then tries every
		// second, so the starts are spread over one.
		if err := observe.Pause(ctx, 2*time.Second+time.Second*time.Duration(number)/time.Duration(s.rests)); err != nil {
			return err
		}
		began := time.Now()
		if err := s.Speaker(node).Boot(ctx); err != nil {
			return err
		}
		if err := s.routes.Await(ctx, func(v routes.View) bool { return v.Through(hop) > 0 }); err != nil {
			return err
		}
		s.note("speaker started, until the router has the first", n, "s", time.Since(began).Seconds())
		if err := s.routes.Await(ctx, func(v routes.View) bool { return s.complete(v, n) }); err != nil {
			return err
		}
		s.note("speaker started, until the router has all routes over it", n, "s", time.Since(began).Seconds())
		if err := observe.Pause(ctx, min(s.quiet, 3*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// steadyRequests counts the requests while nothing changes.
func (s *stage) steadyRequests(ctx context.Context, n int) error {
	if err := observe.Pause(ctx, s.quiet); err != nil {
		return err
	}
	spent, err := s.spent(func() error { return observe.Pause(ctx, s.steady) })
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		name  string
		match func(request) bool
	}{
		{"writes", func(r request) bool { return r.writes() && !r.concerns("leases") }},
		// A server ends a watch after a while, and the client begins it again.
		{"gets and lists", func(r request) bool { return !r.writes() && r.Verb != "watch" && !r.concerns("leases") }},
		{"requests for leases", func(r request) bool { return r.concerns("leases") }},
	} {
		s.note("at rest: "+kind.name+" a minute", n, "requests", spent.count(kind.match)/s.steady.Minutes())
	}
	s.note("at rest: CPU of all nodes", n, "%", 100*spent.cpu.Seconds()/s.steady.Seconds())
	return nil
}
