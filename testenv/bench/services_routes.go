package bench

import (
	"context"
	"net/netip"
	"time"

	"github.com/herald-vip/herald/testenv/services"
)

// within is how long anything may take that is to happen.
const within = 10 * time.Minute

// probeService is the Service whose endpoint on n1 comes and goes; that on n2 stays.
const probeService = "probe"

// bgpPart measures changes of one Service's endpoint, and planned changes of a node.
func (s *stage) bgpPart(ctx context.Context) error {
	if err := s.createProbe(ctx); err != nil {
		return err
	}
	told, err := s.flips(ctx, s.trials)
	if err != nil {
		return err
	}
	told.note(s, 1)
	return s.planned(ctx, services.PoolBGP)
}

// createProbe creates the Service whose endpoint comes and goes, and waits for its route.
func (s *stage) createProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.create(ctx, services.Service{Name: probeService, Pool: services.PoolBGP, Local: true, Endpoints: []string{"n1", "n2"}}); err != nil {
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

// flipped is how long changes of an endpoint took: until the router was told, and
// until it had the route in its kernel.
type flipped struct {
	readyTold, ready, unreadyTold, unready []float64
	// took is from the first change to the last, pauses included.
	took time.Duration
}

// flips takes the probe's endpoint on n1 away and gives it back, n times.
func (s *stage) flips(ctx context.Context, n int) (f flipped, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vip, err := s.AddressOf(ctx, probeService)
	if err != nil {
		return f, err
	}
	n1, n2 := s.Address("n1"), s.Address("n2")
	began := time.Now()
	for range n {
		for _, ready := range []bool{false, true} {
			conditions, hops := services.NotReady(), []netip.Addr{n2}
			if ready {
				conditions, hops = services.Ready(), []netip.Addr{n1, n2}
			}
			// So that the router is at rest, and trials don't fall into step with its timers.
			if err := pause(ctx, 300*time.Millisecond+time.Duration(time.Now().UnixNano()%100)*time.Millisecond); err != nil {
				return f, err
			}
			s.wire.mark()
			at := time.Now()
			if err := s.SetEndpoint(ctx, probeService, "n1", conditions); err != nil {
				return f, err
			}
			installed, err := s.routes.AwaitHops(ctx, vip, hops...)
			if err != nil {
				return f, err
			}
			told, total := &f.unreadyTold, &f.unready
			if ready {
				told, total = &f.readyTold, &f.ready
			}
			*total = append(*total, installed.Sub(at).Seconds())
			if h, ok := s.wire.first(n1); ok {
				*told = append(*told, h.at.Sub(at).Seconds())
			}
		}
	}
	f.took = time.Since(began)
	return f, nil
}

// note notes the changes among this many Services.
func (f flipped) note(s *stage, size int) {
	s.note(EndpointReadyTold, size, f.readyTold...)
	s.note(EndpointReady, size, f.ready...)
	s.note(EndpointUnreadyTold, size, f.unreadyTold...)
	s.note(EndpointUnready, size, f.unready...)
}

// curvePart measures what one change of an endpoint costs among ever more Services.
func (s *stage) curvePart(ctx context.Context) error {
	if err := s.createProbe(ctx); err != nil {
		return err
	}
	for _, n := range s.curve {
		if err := s.grow(ctx, n, false); err != nil {
			return err
		}
		if err := s.size(ctx, n); err != nil {
			return err
		}
		idle, err := s.cpuDuring(func() error { return pause(ctx, min(s.quiet, 5*time.Second)) })
		if err != nil {
			return err
		}
		var f flipped
		busy, err := s.cpuDuring(func() (err error) { f, err = s.flips(ctx, s.trials); return err })
		if err != nil {
			return err
		}
		f.note(s, n)
		rate := idle.Seconds() / min(s.quiet, 5*time.Second).Seconds()
		s.note(EventCPU, n, max(0, busy.Seconds()-rate*f.took.Seconds())/float64(2*s.trials))
	}
	return nil
}

// cpuDuring is the CPU time that the announcer takes meanwhile.
func (s *stage) cpuDuring(do func() error) (time.Duration, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return after - before, err
}
