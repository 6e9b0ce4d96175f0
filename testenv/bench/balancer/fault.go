package balancer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/testenv/step"
)

// faultRate is the number of connections that a client begins per second during a change.
const faultRate = 1000

// faultPart measures what clients on a worker see of server faults and changes.
func (s *stage) faultPart(ctx context.Context) {
	s.bootBoth(ctx)
	for trial := range s.trials {
		m := voters()[trial%len(voters())]
		for _, w := range []string{heraldWorker, haproxyWorker} {
			step.Named(fmt.Sprintf("trial %d, %s", trial+1, balancerOn(w)), func() {
				s.killed(ctx, w, m)
				s.vanished(ctx, w, m)
				s.drained(ctx, w, m)
			})
		}
	}
}

// balancerOn returns the balancer's name in the results.
func balancerOn(worker string) string {
	if worker == haproxyWorker {
		return viaHAProxy
	}
	return viaHerald
}

// during runs a load on a worker while f runs, and returns its result.
func (s *stage) during(ctx context.Context, worker string, l Load, f func()) LoadResult {
	l.Targets = []string{target(worker, local, listenPort)}
	c := s.start(worker, l)
	step.Pause(ctx, s.before)
	f()
	c.stop(ctx)
	return c.load(ctx)
}

// killed kills a server; its own speaker detects that.
func (s *stage) killed(ctx context.Context, worker, m string) {
	var noticed time.Time
	r := s.struck(ctx, worker, m, "server killed", func() {
		step.Do(s.server(m).Kill())
		step.Pause(ctx, s.after)
		noticed = s.found(ctx, m, health.Unhealthy)
	}, func() error { return s.server(m).Boot(ctx) })
	s.took(balancerOn(worker), "server killed: from its own speaker's notice until the last one that failed", "", sinceThen(noticed, r))
}

// vanished silences a machine.
func (s *stage) vanished(ctx context.Context, worker, m string) {
	link := s.Link(m, segment)
	s.struck(ctx, worker, m, "host vanished", func() {
		step.Do(link.Cut())
		step.Pause(ctx, s.vanishing)
	}, link.Heal)
}

// struck records the effects of a master's fault on a worker's client, and undoes the fault.
func (s *stage) struck(ctx context.Context, worker, m, fault string, strike func(), heal func() error) LoadResult {
	before := s.served(ctx, othersThan(m)...)
	var at time.Time
	r := s.during(ctx, worker, Load{Rate: faultRate}, func() {
		at = time.Now()
		strike()
	})
	step.Do(heal())
	missed := s.missed(ctx, r, before, at)
	name := balancerOn(worker)
	s.failed(name, fault+": connections to it that failed", "", r.Failed, r.Good+r.Failed)
	s.failed(name, fault+": connections to others that failed", "", missed, r.Good)
	s.took(name, fault+": until the last connection that failed", "", sinceThen(at, r))
	s.awaitMasters(ctx, worker, voters()...)
	return r
}

// drained takes a server out of service and back: Herald's by a command on the master,
// HAProxy's by a new configuration, as for every change of its servers.
func (s *stage) drained(ctx context.Context, worker, m string) {
	held := s.grip(worker, s.fewer)
	held.open(ctx)
	defer held.close()
	lost := 0
	r := s.during(ctx, worker, Load{Rate: faultRate}, func() {
		for _, change := range []struct {
			command string
			leads   []string // then the balancer uses these
		}{{"drain", othersThan(m)}, {"undrain", voters()}} {
			if worker == haproxyWorker {
				s.reloadHAProxy(ctx, worker, change.leads...)
			} else {
				step.Get(s.speaker(m).Run(ctx, binaryTarget, change.command))
			}
			s.awaitMasters(ctx, worker, change.leads...)
			step.Pause(ctx, s.before)
		}
		lost = held.lost()
	})
	s.failed(balancerOn(worker), "server drained and added: new connections that failed", "", r.Failed, r.Good+r.Failed)
	s.failed(balancerOn(worker), "server drained and added: established connections lost", "", lost, s.fewer)
}

// othersThan returns the permanent masters without one.
func othersThan(master string) []string {
	return slices.DeleteFunc(voters(), func(m string) bool { return m == master })
}

// missed returns the number of failed connections that are not due to the faulty
// master. They began more than a timeout before the fault, or another master accepted
// them but the client got no answer.
func (s *stage) missed(ctx context.Context, r LoadResult, before map[string]int, at time.Time) (missed int) {
	for _, f := range r.Failures {
		if f.At.Add(f.Took).Before(at) {
			missed++
		}
	}
	now := s.served(ctx, slices.Collect(maps.Keys(before))...)
	for m, n := range before {
		missed += now[m] - n - r.By[m]
	}
	return missed
}

// sinceThen returns the time until the start of the last failed connection; 0 if none failed
// since.
func sinceThen(at time.Time, r LoadResult) time.Duration {
	if len(r.Failures) == 0 {
		return 0
	}
	return max(0, r.Failures[len(r.Failures)-1].At.Sub(at))
}
