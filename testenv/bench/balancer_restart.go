package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
	"github.com/herald-vip/herald/testenv/lab"
)

// away is how long a process is gone before it is started again.
const away = time.Second

// change is something that is done to a balancer while connections are established.
type change struct {
	lost, failed BalancerMeasure
	do           func(ctx context.Context, n *lab.Node) error
}

// restartPart measures what established connections see of changes of the balancer.
func (s *balancerStage) restartPart(ctx context.Context) error {
	if err := s.bootBoth(ctx); err != nil {
		return err
	}
	began := len(s.results.Figures)
	again := func(end func(context.Context, *lab.Node) error) func(context.Context, *lab.Node) error {
		return func(ctx context.Context, n *lab.Node) error {
			return errors.Join(end(ctx, n), pause(ctx, away), n.Boot(ctx), s.adopted(ctx, n))
		}
	}
	stopped := func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }
	killed := func(_ context.Context, n *lab.Node) error { return n.Kill() }
	upgraded := func(ctx context.Context, n *lab.Node) error { return errors.Join(s.Install(), n.Stop(ctx)) }
	err := s.changes(ctx, heraldWorker, s.Speaker(heraldWorker), s.trials, []change{
		{RestartLost, RestartFailed, again(stopped)},
		{CrashLost, CrashFailed, again(killed)},
		{UpgradeLost, UpgradeFailed, again(upgraded)},
	})
	if err != nil {
		return err
	}
	if err := s.switched(ctx); err != nil {
		return err
	}
	err = s.changes(ctx, haproxyWorker, s.HAProxy(haproxyWorker), s.rivals, []change{
		{ReloadLost, ReloadFailed, func(ctx context.Context, _ *lab.Node) error {
			return s.ReloadHAProxy(ctx, haproxyWorker, voters()...)
		}},
		{RestartLost, RestartFailed, again(stopped)},
		{CrashLost, CrashFailed, again(killed)},
	})
	s.tell(began)
	return err
}

// adopted waits until Herald says that it balances as it should: before that the kernel
// goes on by itself.
func (s *balancerStage) adopted(ctx context.Context, n *lab.Node) error {
	if n != s.Speaker(heraldWorker) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleBalancers)
	defer cancel()
	return balance.Eventually(ctx, func() error {
		status, err := s.Status(ctx, heraldWorker)
		if err != nil {
			return err
		}
		if b := status.Balancers; len(b) != 1 || b[0].Error != "" || b[0].Serving() < len(voters()) {
			return fmt.Errorf("the balancers are %+v", b)
		}
		return nil
	})
}

// changes makes each change a few times, with connections established before and new ones
// all the time.
func (s *balancerStage) changes(ctx context.Context, worker string, n *lab.Node, trials int, list []change) error {
	h := grip{s: s, worker: worker}
	defer h.close()
	for _, c := range list {
		for range trials {
			if err := h.open(ctx); err != nil {
				return err
			}
			r, err := s.during(ctx, worker, balance.Load{Rate: memberRate}, func() error {
				return errors.Join(c.do(ctx, n), s.settled(ctx, worker, voters()...))
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.lost, err)
			}
			s.note(balancerOn(worker), c.lost, "", h.lost(), float64(s.held))
			s.note(balancerOn(worker), c.failed, "", float64(r.Failed), float64(r.Good+r.Failed))
		}
	}
	return nil
}

// grip is the connections that are held through a balancer. They are the same ones
// from one change to the next, until some are lost.
type grip struct {
	s      *balancerStage
	worker string
	held   *balance.Held
}

// open has them be there.
func (h *grip) open(ctx context.Context) (err error) {
	if h.held == nil {
		h.held, err = balance.Hold(ctx, h.s.Node(h.worker).DialContext, target(h.worker, local, balance.ListenPort), h.s.balancerScale.held)
	}
	return err
}

// lost asks all of them.
func (h *grip) lost() float64 {
	n, _ := h.held.Echo("are you there")
	if n > 0 {
		h.close()
	}
	return float64(n)
}

func (h *grip) close() {
	if h.held != nil {
		h.held.Close()
		h.held = nil
	}
}

// switched has the balancer of a worker be external, and internal again.
func (s *balancerStage) switched(ctx context.Context) error {
	h := grip{s: s, worker: heraldWorker}
	defer h.close()
	for range s.trials {
		if err := h.open(ctx); err != nil {
			return err
		}
		lost := 0.
		for _, to := range []struct {
			kind  string
			taken bool // whether connections are, then
			m     BalancerMeasure
		}{{balance.External, false, ExternalFollow}, {balance.Internal, true, InternalFollow}} {
			began := time.Now()
			if err := errors.Join(s.Switch(heraldWorker, to.kind), s.takes(ctx, to.taken)); err != nil {
				return fmt.Errorf("%s: %w", to.kind, err)
			}
			s.note(viaHerald, to.m, "", time.Since(began).Seconds())
			if h.held != nil {
				lost += h.lost()
			}
		}
		s.note(viaHerald, ExternalLost, "", lost, float64(s.balancerScale.held))
	}
	return nil
}

// takes waits until connections to Herald's balancer are taken, or are not.
func (s *balancerStage) takes(ctx context.Context, wanted bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleBalancers)
	defer cancel()
	return balance.Eventually(ctx, func() error {
		_, err := s.Ask(ctx, heraldWorker, target(heraldWorker, local, balance.ListenPort))
		if taken := err == nil; taken != wanted {
			return errors.Join(fmt.Errorf("connections are taken: %v", taken), err)
		}
		return nil
	})
}
