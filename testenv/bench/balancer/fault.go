package balancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/bench/observe"
)

// faultRate is the number of connections that a client begins per second during a change.
const faultRate = 1000

// faultPart measures what clients on a worker see of server faults and changes.
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

// balancerOn returns the balancer's name in the results.
func balancerOn(worker string) string {
	if worker == haproxyWorker {
		return viaHAProxy
	}
	return viaHerald
}

// during runs a load on a worker while f runs, and returns its result.
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

// killed kills a server; its own speaker detects that.
func (s *stage) killed(ctx context.Context, worker, m string) error {
	var noticed time.Time
	r, err := s.struck(ctx, worker, m, "server killed", func() (err error) {
		if err := errors.Join(s.server(m).Kill(), observe.Pause(ctx, s.after)); err != nil {
			return err
		}
		noticed, err = s.found(ctx, m, health.Unhealthy)
		return err
	}, func() error { return s.server(m).Boot(ctx) })
	if err != nil {
		return err
	}
	s.took(balancerOn(worker), "server killed: from its own speaker's notice until the last one that failed", "", sinceThen(noticed, r))
	return nil
}

// vanished silences a machine.
func (s *stage) vanished(ctx context.Context, worker, m string) error {
	link := s.Link(m, segment)
	_, err := s.struck(ctx, worker, m, "host vanished", func() error {
		return errors.Join(link.Cut(), observe.Pause(ctx, s.vanishing))
	}, link.Heal)
	return err
}

// struck records the effects of a master's fault on a worker's client, and undoes the fault.
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

// drained takes a server out of service and back: Herald's by a command on the master,
// HAProxy's by a new configuration, as for every change of its servers.
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
			leads   []string // then the balancer uses these
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

// othersThan returns the permanent masters without one.
func othersThan(master string) []string {
	return slices.DeleteFunc(voters(), func(m string) bool { return m == master })
}

// missed returns the number of failed connections that are not due to the faulty
// master. They began more than a timeout before the fault, or another master accepted
// them but the client got no answer.
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

// sinceThen returns the time until the start of the last failed connection; 0 if none failed
// since.
func sinceThen(at time.Time, r LoadResult) time.Duration {
	if len(r.Failures) == 0 {
		return 0
	}
	return max(0, r.Failures[len(r.Failures)-1].At.Sub(at))
}
