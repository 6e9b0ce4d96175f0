package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/probe"
)

// errDisturbed is a trial that something else got in the way of. What is left of
// the lab is good.
var errDisturbed = errors.New("disturbed")

// errFailedBefore is one in which connections failed before the fault was made.
var errFailedBefore = fmt.Errorf("%w: connections failed before the fault", errDisturbed)

// leadIn is how long connections must succeed before a fault.
const leadIn = 250 * time.Millisecond

// trial makes a fault on the master and returns what every router and its
// client saw. It waits for a full healthy state before, and for the same after.
func (s *site) trial(ctx context.Context, f fault, master, connections int) ([]Trial, error) {
	if err := s.steady(ctx); err != nil {
		return nil, fmt.Errorf("before the fault: %w", err)
	}
	var clients []*traffic
	for _, r := range s.routers {
		clients = append(clients, send(ctx, r.client, vip+":6443", f.identify))
	}
	var results []*probe.Result // of the clients, when they have ended
	end := func() error {
		for _, c := range clients[len(results):] {
			result, err := c.end()
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return nil
	}
	trials, err := s.measure(ctx, f, master, connections, clients, end)
	err = errors.Join(err, end())
	if err != nil {
		return nil, err
	}
	for i := range trials {
		trials[i].tell(results[i])
	}
	return trials, nil
}

// measure makes the fault and undoes it. It calls end when the clients have
// seen what they are to see.
func (s *site) measure(ctx context.Context, f fault, master, connections int, clients []*traffic, end func() error) ([]Trial, error) {
	if err := pause(ctx, leadIn); err != nil {
		return nil, err
	}
	for _, c := range clients {
		if c.prober.Snapshot().Failed > 0 {
			return nil, errFailedBefore
		}
	}
	for _, r := range s.routers {
		r.routes.mark()
		r.wire.mark()
	}
	limit := cmp.Or(f.limit, usualLimit)
	struck := time.Now()
	deadline := struck.Add(limit)
	if err := f.strike(ctx, s, master); err != nil {
		return nil, err
	}
	trials, err := s.effects(ctx, master, struck, deadline)
	if err != nil {
		return nil, err
	}
	for i := range trials {
		trials[i].Fault, trials[i].Planned, trials[i].Limit = f.name, f.planned, limit
	}
	if !f.planned {
		if err := quiet(ctx, clients, deadline); err != nil {
			return nil, err
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	if err := s.undo(ctx, f, master, trials); err != nil {
		return nil, fmt.Errorf("after the fault: %w", err)
	}
	if !f.planned {
		return trials, nil
	}
	if err := enough(ctx, clients, connections); err != nil {
		return nil, err
	}
	return trials, quiet(ctx, clients, time.Now().Add(limit))
}

// effects waits until no router leads to the master any more, or for the
// deadline, and returns when each was told and acted.
func (s *site) effects(ctx context.Context, master int, struck, deadline time.Time) ([]Trial, error) {
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var trials []Trial
	for _, r := range s.routers {
		t := Trial{Speaker: s.speaker.name(), Router: r.kind.name(), Master: masterOf(master)}
		at, ok := r.routes.gone(r.hop(master))
		if !ok {
			err := r.routes.without(waiting, r.hop(master))
			if err != nil && waiting.Err() == nil {
				return nil, err
			}
			at, ok = r.routes.gone(r.hop(master))
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if ok {
			gone := at.Sub(struck)
			t.Gone = &gone
		}
		if h, ok := r.wire.first(r.hop(master)); ok && (t.Gone == nil || h.at.Sub(struck) <= *t.Gone) {
			told := h.at.Sub(struck)
			t.Told, t.Word = &told, h.word
		}
		trials = append(trials, t)
	}
	return trials, nil
}

// undo ends the fault, waits until all is as before, and notes how long that took.
func (s *site) undo(ctx context.Context, f fault, master int, trials []Trial) error {
	if f.heal == nil {
		return s.steady(ctx)
	}
	for _, r := range s.routers {
		r.routes.mark()
	}
	healed := time.Now()
	if err := errors.Join(f.heal(ctx, s, master), s.realtime()); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, steadyWithin)
	defer cancel()
	g, within := errgroup.WithContext(within)
	for i, r := range s.routers {
		if trials[i].Gone == nil {
			continue // it was never away
		}
		g.Go(func() (err error) {
			trials[i].Back, err = s.back(within, r, master, healed)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.steady(ctx)
}

// back waits until the router leads to the master again, with BFD up if there
// is any, and returns how long after the healing that was; nil if it had come
// back before.
func (s *site) back(ctx context.Context, r *router, master int, healed time.Time) (*time.Duration, error) {
	if err := r.routes.with(ctx, r.hop(master)); err != nil {
		return nil, err
	}
	at, ok := r.routes.back(r.hop(master))
	if !ok {
		return nil, nil
	}
	after := at.Sub(healed)
	if s.bfd > 0 {
		if err := s.bfdUp(ctx, r); err != nil {
			return nil, err
		}
		after = max(after, time.Since(healed))
	}
	return &after, nil
}
