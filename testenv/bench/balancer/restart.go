package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
)

// away is the time between a process's end and its restart.
const away = time.Second

// change is a change of a balancer while connections are established.
type change struct {
	name string
	do   func(ctx context.Context, n *lab.Node) error
}

// restartPart measures what established connections see of changes of the balancer.
func (s *stage) restartPart(ctx context.Context) error {
	if err := s.bootBoth(ctx); err != nil {
		return err
	}
	again := func(end func(context.Context, *lab.Node) error) func(context.Context, *lab.Node) error {
		return func(ctx context.Context, n *lab.Node) error {
			return errors.Join(end(ctx, n), observe.Pause(ctx, away), n.Boot(ctx), s.adopted(ctx, n))
		}
	}
	stopped := func(ctx context.Context, n *lab.Node) error { return n.Stop(ctx) }
	killed := func(_ context.Context, n *lab.Node) error { return n.Kill() }
	upgraded := func(ctx context.Context, n *lab.Node) error { return errors.Join(s.install(), n.Stop(ctx)) }
	err := s.changes(ctx, heraldWorker, s.speaker(heraldWorker), s.trials, []change{
		{"restarted", again(stopped)},
		{"killed and started", again(killed)},
		{"upgraded", again(upgraded)},
	})
	if err != nil {
		return err
	}
	if err := s.switched(ctx); err != nil {
		return err
	}
	err = s.changes(ctx, haproxyWorker, s.haproxy(haproxyWorker), s.rivals, []change{
		{"reloaded", func(ctx context.Context, _ *lab.Node) error {
			return s.reloadHAProxy(ctx, haproxyWorker, voters()...)
		}},
		{"restarted", again(stopped)},
		{"killed and started", again(killed)},
	})
	return err
}

// adopted waits until Herald reports that it balances properly: before that the kernel
// forwards on its own.
func (s *stage) adopted(ctx context.Context, n *lab.Node) error {
	if n != s.speaker(heraldWorker) {
		return nil
	}
	return observe.Eventually(ctx, leadsWithin, func() error {
		status, err := observe.Status(ctx, s.speaker(heraldWorker), binaryTarget)
		if err != nil {
			return err
		}
		if b := status.Balancers; len(b) != 1 || b[0].Error != "" || b[0].Serving() < len(voters()) {
			return fmt.Errorf("the balancers are %+v", b)
		}
		return nil
	})
}

// changes makes each change a few times, with established connections and a stream of new ones.
func (s *stage) changes(ctx context.Context, worker string, n *lab.Node, trials int, list []change) error {
	h := s.grip(worker, s.held)
	defer h.close()
	for _, c := range list {
		for range trials {
			if err := h.open(ctx); err != nil {
				return err
			}
			r, err := s.during(ctx, worker, Load{Rate: memberRate}, func() error {
				return errors.Join(c.do(ctx, n), s.awaitMasters(ctx, worker, voters()...))
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			s.failed(balancerOn(worker), c.name+": established connections lost", "", h.lost(), s.held)
			s.failed(balancerOn(worker), c.name+": new connections that failed", "", r.Failed, r.Good+r.Failed)
		}
	}
	return nil
}

// grip holds connections through the balancer on a worker.
func (s *stage) grip(worker string, count int) *grip {
	return &grip{dial: s.Node(worker).DialContext, address: target(worker, local, listenPort), count: count}
}

// switched makes a worker's balancer external, and internal again.
func (s *stage) switched(ctx context.Context) error {
	h := s.grip(heraldWorker, s.held)
	defer h.close()
	for range s.trials {
		if err := h.open(ctx); err != nil {
			return err
		}
		lost := 0
		for _, change := range []struct {
			kind    string
			taken   bool // whether it then accepts connections
			measure string
		}{{external, false, "internal to external: until nobody listens"}, {internal, true, "external to internal: until connections are taken"}} {
			began := time.Now()
			if err := errors.Join(s.switchTo(heraldWorker, change.kind), s.takes(ctx, change.taken)); err != nil {
				return fmt.Errorf("%s: %w", change.kind, err)
			}
			s.took(viaHerald, change.measure, "", time.Since(began))
			lost += h.lost() // none, if they were lost before
		}
		s.failed(viaHerald, "internal to external and back: established connections lost", "", lost, s.held)
	}
	return nil
}

// takes waits until Herald's balancer accepts connections, or refuses them.
func (s *stage) takes(ctx context.Context, wanted bool) error {
	return observe.Eventually(ctx, leadsWithin, func() error {
		_, err := s.ask(ctx, heraldWorker, target(heraldWorker, local, listenPort), "/", time.Second)
		if taken := err == nil; taken != wanted {
			return errors.Join(fmt.Errorf("connections are taken: %v", taken), err)
		}
		return nil
	})
}
