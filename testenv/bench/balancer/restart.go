package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// away is the time between a process's end and its restart.
const away = time.Second

// change is a change of a balancer while connections are established.
type change struct {
	name string
	do   func(n *lab.Node)
}

// restartPart measures what established connections see of changes of the balancer.
func (s *stage) restartPart(ctx context.Context) {
	s.bootBoth(ctx)
	again := func(end func(*lab.Node)) func(*lab.Node) {
		return func(n *lab.Node) {
			end(n)
			step.Pause(ctx, away)
			step.Do(n.Boot(ctx))
			s.adopted(ctx, n)
		}
	}
	stopped := func(n *lab.Node) { step.Do(n.Stop(ctx)) }
	killed := func(n *lab.Node) { step.Do(n.Kill()) }
	upgraded := func(n *lab.Node) { s.install(); stopped(n) }
	reloaded := func(*lab.Node) { s.reloadHAProxy(ctx, haproxyWorker, voters()...) }
	s.changes(ctx, heraldWorker, s.speaker(heraldWorker), s.trials,
		change{"restarted", again(stopped)}, change{"killed and started", again(killed)}, change{"upgraded", again(upgraded)})
	s.switched(ctx)
	s.changes(ctx, haproxyWorker, s.haproxy(haproxyWorker), s.rivals,
		change{"reloaded", reloaded}, change{"restarted", again(stopped)}, change{"killed and started", again(killed)})
}

// adopted waits until Herald reports that it balances properly: before that the kernel
// forwards on its own.
func (s *stage) adopted(ctx context.Context, n *lab.Node) {
	if n != s.speaker(heraldWorker) {
		return
	}
	step.Eventually(ctx, leadsWithin, func() error {
		status, err := observe.Status(ctx, n, binaryTarget)
		if b := status.Balancers; err == nil && (len(b) != 1 || b[0].Error != "" || b[0].Serving() < len(voters())) {
			err = fmt.Errorf("the balancers are %+v", b)
		}
		return err
	})
}

// changes makes each change a few times, with established connections and a stream of new ones.
func (s *stage) changes(ctx context.Context, worker string, n *lab.Node, trials int, list ...change) {
	h := s.grip(worker, s.held)
	defer h.close()
	for _, c := range list {
		for range trials {
			h.open(ctx)
			var r LoadResult
			step.Named(c.name, func() {
				r = s.during(ctx, worker, Load{Rate: memberRate}, func() {
					c.do(n)
					s.awaitMasters(ctx, worker, voters()...)
				})
			})
			s.failed(balancerOn(worker), c.name+": established connections lost", "", h.lost(), s.held)
			s.failed(balancerOn(worker), c.name+": new connections that failed", "", r.Failed, r.Good+r.Failed)
		}
	}
}

// grip holds connections through the balancer on a worker.
func (s *stage) grip(worker string, count int) *grip {
	return &grip{dial: s.Node(worker).DialContext, address: target(worker, local, listenPort), count: count}
}

// switched makes a worker's balancer external, and internal again.
func (s *stage) switched(ctx context.Context) {
	h := s.grip(heraldWorker, s.held)
	defer h.close()
	for range s.trials {
		h.open(ctx)
		lost := 0
		for _, change := range []struct {
			kind    string
			taken   bool // whether it then accepts connections
			measure string
		}{{external, false, "internal to external: until nobody listens"}, {internal, true, "external to internal: until connections are taken"}} {
			began := time.Now()
			step.Named(change.kind, func() {
				s.switchTo(heraldWorker, change.kind)
				s.takes(ctx, change.taken)
			})
			s.took(viaHerald, change.measure, "", time.Since(began))
			lost += h.lost() // none, if they were lost before
		}
		s.failed(viaHerald, "internal to external and back: established connections lost", "", lost, s.held)
	}
}

// takes waits until Herald's balancer accepts connections, or refuses them.
func (s *stage) takes(ctx context.Context, wanted bool) {
	step.Eventually(ctx, leadsWithin, func() error {
		_, err := s.ask(ctx, heraldWorker, target(heraldWorker, local, listenPort), "/", time.Second)
		if taken := err == nil; taken != wanted {
			return errors.Join(fmt.Errorf("connections are taken: %v", taken), err)
		}
		return nil
	})
}
