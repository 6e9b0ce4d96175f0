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
	"github.com/herald-vip/herald/testenv/step"
)

// growthPart measures the resources for increasing numbers of Services.
func (s *stage) growthPart(ctx context.Context) {
	s.createProbe(ctx)
	s.size(ctx, s.sizes[0])
	for i, n := range s.sizes[1:] {
		s.grow(ctx, n, i > 0)
		s.size(ctx, n)
		s.restarts(ctx, n)
	}
	s.steadyRequests(ctx, s.sizes[len(s.sizes)-1])
}

// filler returns a Service that never changes.
func (s *stage) filler(i int) cluster.Service {
	return cluster.Service{Name: fmt.Sprintf("s%05d", i), Pool: cluster.PoolBGP, Endpoints: s.Members()}
}

// grow creates Services until there are n with the probe, and waits until the router
// reaches them all over all nodes. It records the time and cost if tell is set.
func (s *stage) grow(ctx context.Context, n int, tell bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list []cluster.Service
	for ; s.have < n; s.have++ {
		list = append(list, s.filler(s.have))
	}
	var began, created, done time.Time
	spent := s.spent(func() {
		began = time.Now()
		step.Do(s.Create(ctx, list...))
		created = time.Now()
		s.awaitComplete(ctx, n)
		done = time.Now()
		// An announcer's later writes to its own records count too.
		step.Pause(ctx, min(s.quiet, 3*time.Second))
	})
	s.note("growth: the API server takes the Services", n, "s", created.Sub(began).Seconds())
	s.note("growth: from the last Service until the router has all routes", n, "s", max(0, done.Sub(created).Seconds()))
	s.note("growth: CPU of all nodes", n, "s", spent.cpu.Seconds())
	if tell {
		events := spent.count(func(r request) bool { return r.writes() && r.concerns("events") })
		all := spent.count(func(r request) bool { return r.writes() && !r.concerns("leases") })
		s.note("growth: writes for each Service", n, "requests", (all-events)/float64(len(list)))
		s.note("growth: events for each Service", n, "requests", events/float64(len(list)))
	}
}

// awaitComplete waits until the router has a route to n Services, and over every node
// all except the probe's, which is on two.
func (s *stage) awaitComplete(ctx context.Context, n int) {
	step.Do(s.routes.Await(ctx, func(v routes.View) bool {
		return v.Prefixes() >= n && !slices.ContainsFunc(s.Members(), func(m string) bool { return v.Through(s.Address(m)) < n-1 })
	}))
}

// size records the memory at this number of Services.
func (s *stage) size(ctx context.Context, n int) {
	step.Pause(ctx, s.quiet)
	note := func(measure string, programs []*lab.Process) {
		for _, p := range programs {
			s.note(measure, n, "MB", observe.Resident(p.Pid())*1e-6)
		}
	}
	speakers, controllers := s.programs()
	note("memory of each speaker", speakers)
	note("memory of the controller", controllers)
}

// restarts stops the speaker of n3, and measures how long after a new start the router
// has all routes over it again.
func (s *stage) restarts(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const node = "n3"
	hop := s.Address(node)
	awaitHop := func(used bool) {
		step.Do(s.routes.Await(ctx, func(v routes.View) bool { return (v.Through(hop) > 0) == used }))
	}
	for number := range s.rests {
		step.Do(s.Speaker(node).Stop(ctx))
		awaitHop(false)
		// A router that lost a session takes a moment to accept another. It then tries every
		// second, so the starts are spread over one.
		step.Pause(ctx, 2*time.Second+time.Second*time.Duration(number)/time.Duration(s.rests))
		began := time.Now()
		step.Do(s.Speaker(node).Boot(ctx))
		awaitHop(true)
		s.note("speaker started, until the router has the first", n, "s", time.Since(began).Seconds())
		s.awaitComplete(ctx, n)
		s.note("speaker started, until the router has all routes over it", n, "s", time.Since(began).Seconds())
		step.Pause(ctx, min(s.quiet, 3*time.Second))
	}
}

// steadyRequests counts the requests while nothing changes. The conditions of Services follow their routes by some
// seconds.
func (s *stage) steadyRequests(ctx context.Context, n int) {
	step.Pause(ctx, max(s.quiet, 10*time.Second))
	spent := s.spent(func() { step.Pause(ctx, s.steady) })
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
}
