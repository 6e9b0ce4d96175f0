package balancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
)

// faultRate is how many connections a client begins in a second while something is done.
const faultRate = 1000

// faultPart measures what clients on a worker see of what happens to a server.
func (s *stage) faultPart(ctx context.Context) error {
	if err := s.bootBoth(ctx); err != nil {
		return err
	}
	for trial := range s.trials {
		m := voters()[trial%len(voters())]
		for _, w := range []string{heraldWorker, haproxyWorker} {
			for _, f := range []func(context.Context, string, string) error{s.killed, s.vanished, s.drained} {
				if err := f(ctx, w, m); err != nil {
					return fmt.Errorf("trial %d, %s: %w", trial+1, balancerOn(w), err)
				}
			}
		}
	}
	return nil
}

// balancerOn is what the balancer on a worker is called in the results.
func balancerOn(worker string) string {
	if worker == haproxyWorker {
		return viaHAProxy
	}
	return viaHerald
}

// during runs a load on a worker while f does something, and returns what came of it.
func (s *stage) during(ctx context.Context, worker string, l Load, f func() error) (r LoadResult, err error) {
	l.Targets = []string{target(worker, local, listenPort)}
	c, err := s.start(worker, l)
	if err != nil {
		return r, err
	}
	if err = observe.Pause(ctx, s.before); err == nil {
		err = f()
	}
	return r, errors.Join(err, c.stop(ctx, &r))
}

// killed kills a server, which its own speaker notices.
func (s *stage) killed(ctx context.Context, worker, m string) error {
	var noticed time.Time
	r, err := s.struck(ctx, worker, m, "server killed", func() (err error) {
		if err := errors.Join(s.server(m).Kill(), observe.Pause(ctx, s.after)); err != nil {
			return err
		}
		noticed, err = s.found(ctx, m, "unhealthy")
		return err
	}, func() error { return s.server(m).Boot(ctx) })
	if err != nil {
		return err
	}
	s.took(balancerOn(worker), "server killed: from its own speaker's notice until the last one that failed", "", sinceThen(noticed, r))
	return nil
}

// vanished has a machine go silent, with all that it runs.
func (s *stage) vanished(ctx context.Context, worker, m string) error {
	link := s.Link(m, segment)
	_, err := s.struck(ctx, worker, m, "host vanished", func() error {
		return errors.Join(link.Cut(), observe.Pause(ctx, s.vanishing))
	}, link.Heal)
	return err
}

// struck notes what a client on a worker sees of a master's fault, which is undone afterwards.
func (s *stage) struck(ctx context.Context, worker, m, fault string, strike, heal func() error) (r LoadResult, err error) {
	before, err := s.served(ctx, othersThan(m)...)
	if err != nil {
		return r, err
	}
	var at time.Time
	r, err = s.during(ctx, worker, Load{Rate: faultRate}, func() error {
		at = time.Now()
		return strike()
	})
	if err := errors.Join(err, heal()); err != nil {
		return r, err
	}
	missed, err := s.missed(ctx, r, before, at)
	if err != nil {
		return r, err
	}
	name := balancerOn(worker)
	s.failed(name, fault+": connections to it that failed", "", r.Failed, r.Good+r.Failed)
	s.failed(name, fault+": connections to others that failed", "", missed, r.Good)
	s.took(name, fault+": until the last connection that failed", "", sinceThen(at, r))
	return r, s.awaitMasters(ctx, worker, voters()...)
}

// drained takes a server out on purpose, and back. Herald's way is a command on the
// master; that of HAProxy is another configuration, as it is when masters come and go.
func (s *stage) drained(ctx context.Context, worker, m string) error {
	held := s.grip(worker, s.fewer)
	if err := held.open(ctx); err != nil {
		return err
	}
	defer held.close()
	take := func(command string, masters ...string) error {
		if worker == haproxyWorker {
			return s.reloadHAProxy(ctx, worker, masters...)
		}
		_, err := s.speaker(m).Run(ctx, binaryTarget, command)
		return err
	}
	lost := 0
	r, err := s.during(ctx, worker, Load{Rate: faultRate}, func() error {
		for _, step := range []struct {
			command string
			leads   []string // the balancer, then
		}{{"drain", othersThan(m)}, {"undrain", voters()}} {
			if err := take(step.command, step.leads...); err != nil {
				return err
			}
			if err := errors.Join(s.awaitMasters(ctx, worker, step.leads...), observe.Pause(ctx, s.before)); err != nil {
				return err
			}
		}
		lost = held.lost()
		return nil
	})
	if err != nil {
		return err
	}
	s.failed(balancerOn(worker), "server drained and added: new connections that failed", "", r.Failed, r.Good+r.Failed)
	s.failed(balancerOn(worker), "server drained and added: established connections lost", "", lost, s.fewer)
	return nil
}

// othersThan are the masters that are always there, but one.
func othersThan(master string) []string {
	return slices.DeleteFunc(voters(), func(m string) bool { return m == master })
}

// missed is how many connections failed that were not the faulty master's: those that
// began before the fault, with a timeout's distance, and those that the other masters
// took without the client having had their answer.
func (s *stage) missed(ctx context.Context, r LoadResult, before map[string]int, at time.Time) (missed int, err error) {
	for _, f := range r.Failures {
		if f.At.Add(f.Took).Before(at) {
			missed++
		}
	}
	now, err := s.served(ctx, slices.Collect(maps.Keys(before))...)
	for m, n := range before {
		missed += now[m] - n - r.By[m]
	}
	return missed, err
}

// sinceThen is the time until the start of the last connection that failed; 0 if none
// failed since.
func sinceThen(at time.Time, r LoadResult) time.Duration {
	if len(r.Failures) == 0 {
		return 0
	}
	return max(0, r.Failures[len(r.Failures)-1].At.Sub(at))
}
