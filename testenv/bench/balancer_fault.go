package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
)

// faultRate is how many connections a client begins in a second while something is done.
const faultRate = 1000

// faultPart measures what clients on a worker see of what happens to a server.
func (s *balancerStage) faultPart(ctx context.Context) error {
	if err := s.bootBoth(ctx); err != nil {
		return err
	}
	began := len(s.results.Figures)
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
	s.tell(began)
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
func (s *balancerStage) during(ctx context.Context, worker string, l balance.Load, f func() error) (*balance.LoadResult, error) {
	l.Targets = []string{target(worker, local, balance.ListenPort)}
	c, err := s.Load(worker, l)
	if err != nil {
		return nil, err
	}
	err = pause(ctx, s.before)
	if err == nil {
		err = f()
	}
	r, e := result[balance.LoadResult](c.Stop(ctx))
	return r, errors.Join(err, e)
}

// killed kills a server, which its own speaker notices.
func (s *balancerStage) killed(ctx context.Context, worker, m string) error {
	others := othersThan(m)
	before, err := s.served(ctx, others...)
	if err != nil {
		return err
	}
	var at, noticed time.Time
	r, err := s.during(ctx, worker, balance.Load{Rate: faultRate}, func() error {
		at = time.Now()
		if err := errors.Join(s.Server(m).Kill(), pause(ctx, s.after)); err != nil {
			return err
		}
		noticed, err = s.found(ctx, m, "unhealthy")
		return err
	})
	if err != nil {
		return err
	}
	missed, err := s.missed(ctx, r, before, at)
	if err != nil {
		return err
	}
	name := balancerOn(worker)
	s.note(name, KilledFailed, "", float64(r.Failed), float64(r.Good+r.Failed))
	s.note(name, KilledOthers, "", missed, float64(r.Good))
	s.note(name, KilledOut, "", sinceThen(at, r).Seconds())
	s.note(name, KilledTold, "", sinceThen(noticed, r).Seconds())
	if err := s.Server(m).Boot(ctx); err != nil {
		return err
	}
	return s.settled(ctx, worker, voters()...)
}

// vanished has a machine go silent, with all that it runs.
func (s *balancerStage) vanished(ctx context.Context, worker, m string) error {
	before, err := s.served(ctx, othersThan(m)...)
	if err != nil {
		return err
	}
	link := s.Link(m, balance.Segment)
	var at time.Time
	r, err := s.during(ctx, worker, balance.Load{Rate: faultRate}, func() error {
		at = time.Now()
		return errors.Join(link.Cut(), pause(ctx, s.vanishing))
	})
	if e := link.Heal(); err != nil || e != nil {
		return errors.Join(err, e)
	}
	missed, err := s.missed(ctx, r, before, at)
	if err != nil {
		return err
	}
	name := balancerOn(worker)
	s.note(name, VanishedFailed, "", float64(r.Failed), float64(r.Good+r.Failed))
	s.note(name, VanishedOthers, "", missed, float64(r.Good))
	s.note(name, VanishedOut, "", sinceThen(at, r).Seconds())
	return s.settled(ctx, worker, voters()...)
}

// drained takes a server out on purpose, and back. Herald's way is a command on the
// master; that of HAProxy is another configuration, as it is when masters come and go.
func (s *balancerStage) drained(ctx context.Context, worker, m string) error {
	held, err := balance.Hold(ctx, s.Node(worker).DialContext, target(worker, local, balance.ListenPort), s.fewer)
	if err != nil {
		return err
	}
	defer held.Close()
	take := func(command string, masters ...string) error {
		if worker == haproxyWorker {
			return s.ReloadHAProxy(ctx, worker, masters...)
		}
		_, err := s.Speaker(m).Run(ctx, "/opt/herald/herald", command)
		return err
	}
	lost := 0
	r, err := s.during(ctx, worker, balance.Load{Rate: faultRate}, func() error {
		if err := take("drain", othersThan(m)...); err != nil {
			return err
		}
		if err := errors.Join(s.settled(ctx, worker, othersThan(m)...), pause(ctx, s.before)); err != nil {
			return err
		}
		if err := take("undrain", voters()...); err != nil {
			return err
		}
		if err := errors.Join(s.settled(ctx, worker, voters()...), pause(ctx, s.before)); err != nil {
			return err
		}
		lost, _ = held.Echo("after the drain")
		return nil
	})
	if err != nil {
		return err
	}
	s.note(balancerOn(worker), DrainedFailed, "", float64(r.Failed), float64(r.Good+r.Failed))
	s.note(balancerOn(worker), DrainedLost, "", float64(lost), float64(s.fewer))
	return nil
}

// othersThan are the masters that are always there, but one.
func othersThan(master string) (list []string) {
	for _, m := range voters() {
		if m != master {
			list = append(list, m)
		}
	}
	return list
}

// missed is how many connections failed that were not the faulty master's: those that
// began before the fault, with a timeout's distance, and those that the other masters
// took without the client having had their answer.
func (s *balancerStage) missed(ctx context.Context, r *balance.LoadResult, before map[string]int, at time.Time) (float64, error) {
	missed := 0
	for _, f := range r.Failures {
		if f.At.Add(f.Took).Before(at) {
			missed++
		}
	}
	for m, n := range before {
		now, err := s.Served(ctx, m)
		if err != nil {
			return 0, err
		}
		missed += now - n - r.By[m]
	}
	return float64(missed), nil
}

// sinceThen is the time until the start of the last connection that failed; 0 if none
// failed since.
func sinceThen(at time.Time, r *balance.LoadResult) time.Duration {
	if len(r.Failures) == 0 {
		return 0
	}
	return max(0, r.Failures[len(r.Failures)-1].At.Sub(at))
}
