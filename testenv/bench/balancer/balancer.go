// Package balancer compares Herald and HAProxy as balancers: what balancing
// connections costs, and what clients see when a server fails, when masters join and
// leave, and when the balancer restarts.
package balancer

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/bench/suite"
	"github.com/herald-vip/herald/testenv/lab"
	"github.com/herald-vip/herald/testenv/step"
)

// The paths.
const (
	local  = "local"  // from the balancer's machine, to 127.0.0.1
	remote = "remote" // from another machine, to its address
)

// The ways of connections.
const (
	direct        = "direct"
	directAgain   = "direct, again"   // the same, to show the resolution of a comparison
	directTracked = "direct, tracked" // from a machine that tracks connections, as Herald does there
	forwarded     = "forwarded"       // through a machine that does not balance
	viaHerald     = "herald"
	viaProxy      = "herald, proxy"
	viaHAProxy    = "haproxy"
	viaHAProxySpl = "haproxy, splice"
)

// Each has a worker to itself.
const (
	heraldWorker, haproxyWorker, directWorker, proxyWorker, trackingWorker = "w1", "w2", "w3", "w4", "w5"
)

// scale is the extent of the measurements.
type scale struct {
	rounds      int           // of each load; the ways take turns
	last        time.Duration // of one load.
	rate        int           // connections a second, of the open loop
	pacedCount  int           // connections at that rate, of one way in a round
	streamTurns int           // of one stream in a round.
	trials      int           // of a fault or change.
	rivals      int           // of the rival's changes, measured only for comparison
	spread      int           // connections.
	held        int           // established connections, over a restart
	fewer       int           // over a drain.
	before      time.Duration // before a fault
	after       time.Duration // after a fault that is signalled.
	vanishing   time.Duration // after a fault that is not signalled
	followed    time.Duration // how long to wait until all workers have followed
}

func scaleOf(o suite.Options) scale {
	s := scale{rounds: 2 * o.Trials, last: 350 * time.Millisecond, rate: 1000, pacedCount: 800, streamTurns: 6,
		trials: o.Trials, rivals: min(3, o.Trials), spread: 3000, held: 5000, fewer: 300,
		before: 300 * time.Millisecond, after: time.Second, vanishing: 2 * time.Second, followed: 3 * time.Second}
	if o.Quick {
		s.rounds, s.last, s.pacedCount, s.trials, s.rivals, s.held, s.followed = 1, 250*time.Millisecond, 200, 1, 1, 500, 1500*time.Millisecond
	}
	return s
}

// bench is a run.
type bench struct {
	suite.Options
	scale
	*record.Recorder
}

// Run takes the measurements of both balancers.
func Run(ctx context.Context, rec *record.Recorder, o suite.Options) error {
	b := &bench{Options: o, scale: scaleOf(o), Recorder: rec}
	in := func(part string, run func(*stage, context.Context)) suite.Part {
		return suite.Part{Name: part, Run: func(ctx context.Context) { b.stage(ctx, part, run) }}
	}
	return o.Each(ctx,
		in(local, (*stage).loadPart),
		in(remote, (*stage).loadPart),
		in("faults", (*stage).faultPart),
		in("masters", (*stage).mastersPart),
		in("restarts", (*stage).restartPart))
}

// stage lays out a lab, measures one part in it, and closes it.
func (b *bench) stage(ctx context.Context, part string, run func(*stage, context.Context)) {
	s := &stage{bench: b, part: part, dir: step.Get(filepath.Abs(filepath.Join(b.Dir, part)))}
	if part == local || part == remote {
		s.proxy = proxyWorker
	}
	s.lay(ctx)
	defer step.Close(s.Close)
	for _, m := range voters() {
		step.Do(s.server(m).Boot(ctx))
		step.Do(s.speaker(m).Boot(ctx))
	}
	run(s, ctx)
}

// leadsWithin bounds the time until a balancer uses all masters.
const leadsWithin = 30 * time.Second

// awaitMasters waits until the balancer on a worker uses exactly these masters. It
// makes enough connections to miss none: each master must answer, and no other.
func (s *stage) awaitMasters(ctx context.Context, worker string, masters ...string) {
	step.Named(fmt.Sprintf("the balancer on %s does not lead to %v", worker, masters), func() {
		step.Eventually(ctx, leadsWithin, func() error {
			seen := make(map[string]bool)
			for range 8 * len(masters) {
				name, err := s.ask(ctx, worker, target(worker, local, listenPort), "/", time.Second)
				if err != nil {
					return err
				}
				seen[name] = true
			}
			for _, m := range masters {
				if !seen[m] {
					return fmt.Errorf("%s has no connection", m)
				}
			}
			if len(seen) > len(masters) {
				return fmt.Errorf("connections go to %v", seen)
			}
			return nil
		})
	})
}

// boot boots a program on these workers, and waits until it balances.
func (s *stage) boot(ctx context.Context, program func(worker string) *lab.Node, workers ...string) {
	for _, w := range workers {
		step.Do(program(w).Boot(ctx))
	}
	for _, w := range workers {
		s.awaitMasters(ctx, w, voters()...)
	}
}

// note records a value of a measure, took a duration, and failed the number of failed
// connections out of all.
func (b *bench) note(balancer, measure, path, unit string, value float64) {
	b.Add(resultName(balancer, measure, path), record.Value{Value: value, Unit: unit})
}

func (b *bench) took(balancer, measure, path string, d time.Duration) {
	b.note(balancer, measure, path, "ms", d.Seconds()*1e3)
}

func (b *bench) failed(balancer, measure, path string, failed, all int) {
	b.Add(resultName(balancer, measure, path), record.Failed(failed, all)...)
}

func resultName(balancer, measure, path string) string {
	return record.Name("Balancer", "measure", measure, "balancer", balancer, "path", path)
}

// bootBoth boots Herald and HAProxy, each on its worker.
func (s *stage) bootBoth(ctx context.Context) {
	s.boot(ctx, s.speaker, heraldWorker)
	s.boot(ctx, s.haproxy, haproxyWorker)
}
