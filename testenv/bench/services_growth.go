package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/services"
)

// growthPart measures what ever more Services take.
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

// filler is a Service that nothing happens to.
func (s *stage) filler(i int) services.Service {
	return services.Service{Name: fmt.Sprintf("s%05d", i), Pool: services.PoolBGP, Endpoints: s.Members()}
}

// grow creates Services until there are n with the probe, waits until the router has
// them all over all nodes, and tells what it took if that is wanted.
func (s *stage) grow(ctx context.Context, n int, tell bool) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var list []services.Service
	for ; s.have < n; s.have++ {
		list = append(list, s.filler(s.have))
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	_, mark, err := s.counted(0)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.create(ctx, list...); err != nil {
		return err
	}
	created := time.Now()
	if err := s.routes.Await(ctx, func(v services.View) bool { return s.complete(v, n) }); err != nil {
		return err
	}
	done := time.Now()
	// What an announcer does after that, to its own records, belongs to it too.
	if err := pause(ctx, min(s.quiet, 3*time.Second)); err != nil {
		return err
	}
	after, err := s.cpu()
	if err != nil {
		return err
	}
	s.note(GrowthCreate, n, created.Sub(began).Seconds())
	s.note(GrowthComplete, n, max(0, done.Sub(created).Seconds()))
	s.note(GrowthCPU, n, (after - before).Seconds())
	counts, _, err := s.counted(mark)
	if err != nil {
		return err
	}
	if tell {
		s.perService(counts, n, len(list))
	}
	return nil
}

// complete reports whether the router has a route to n Services, and over every node
// all but the probe's, which is on two.
func (s *stage) complete(v services.View, n int) bool {
	if v.Prefixes() < n {
		return false
	}
	return !slices.ContainsFunc(s.Members(), func(m string) bool { return v.Through(s.Address(m)) < n-1 })
}

// perService notes the requests that a new Service costs: writes of the Service and
// of whatever else, events apart.
func (s *stage) perService(counts map[request]int, size, added int) {
	var objects, events int
	for r, n := range counts {
		switch {
		case !r.writes() || r.ObjectRef.Resource == "leases":
		case r.ObjectRef.Resource == "events":
			events += n
		default:
			objects += n
		}
	}
	s.note(GrowthWrites, size, float64(objects)/float64(added))
	s.note(GrowthEvents, size, float64(events)/float64(added))
}

// size notes the memory at this number of Services.
func (s *stage) size(ctx context.Context, n int) error {
	if err := pause(ctx, s.quiet); err != nil {
		return err
	}
	speakers, controllers := s.programs()
	if err := s.memory(MemorySpeaker, n, speakers); err != nil || len(controllers) == 0 {
		return err
	}
	return s.memory(MemoryController, n, controllers)
}

func (s *stage) memory(m Measure, n int, programs []*lab.Process) error {
	var values []float64
	for _, p := range programs {
		v, err := rss(p.Pid())
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	s.note(m, n, values...)
	return nil
}

// restarts stops the speaker of n3, and measures how long after a new start the router
// has all routes over it again.
func (s *stage) restarts(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	const node = "n3"
	hop := s.Address(node)
	var all, first []float64
	for number := range s.rests {
		if err := s.Speaker(node).Stop(ctx); err != nil {
			return err
		}
		if err := s.routes.Await(ctx, func(v services.View) bool { return v.Through(hop) == 0 }); err != nil {
			return err
		}
		// A router that lost a session takes a moment to accept another. It then tries
		// every second, so the starts are spread over one.
		if err := pause(ctx, 2*time.Second+time.Second*time.Duration(number)/time.Duration(s.rests)); err != nil {
			return err
		}
		began := time.Now()
		if err := s.Speaker(node).Boot(ctx); err != nil {
			return err
		}
		if err := s.routes.Await(ctx, func(v services.View) bool { return v.Through(hop) > 0 }); err != nil {
			return err
		}
		first = append(first, time.Since(began).Seconds())
		if err := s.routes.Await(ctx, func(v services.View) bool { return s.complete(v, n) }); err != nil {
			return err
		}
		all = append(all, time.Since(began).Seconds())
		if err := pause(ctx, min(s.quiet, 3*time.Second)); err != nil {
			return err
		}
	}
	s.note(RestartFirst, n, first...)
	s.note(Restart, n, all...)
	return nil
}

// steadyRequests counts the requests of a while in which nothing happens.
func (s *stage) steadyRequests(ctx context.Context, n int) error {
	if err := pause(ctx, s.quiet); err != nil {
		return err
	}
	_, mark, err := s.counted(0)
	if err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	if err := pause(ctx, s.steady); err != nil {
		return err
	}
	after, err := s.cpu()
	if err != nil {
		return err
	}
	counts, _, err := s.counted(mark)
	if err != nil {
		return err
	}
	var leases, writes, reads int
	for r, count := range counts {
		switch {
		case r.ObjectRef.Resource == "leases":
			leases += count
		case r.writes():
			writes += count
			fmt.Fprintf(s.bench.out, "  at rest: %d × %s\n", count, r.what())
		case r.Verb != "watch": // which a server ends after a while, and is begun again
			reads += count
		}
	}
	minutes := s.steady.Minutes()
	s.note(SteadyWrites, n, float64(writes)/minutes)
	s.note(SteadyReads, n, float64(reads)/minutes)
	s.note(SteadyLeases, n, float64(leases)/minutes)
	s.note(SteadyCPU, n, (after-before).Seconds()/s.steady.Seconds())
	return nil
}
