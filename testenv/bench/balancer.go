package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/testenv/balance"
	"github.com/herald-vip/herald/testenv/lab"
)

// BalancerOptions say what to measure of balancers.
type BalancerOptions struct {
	// Herald, Testenv and HAProxy are the paths of the binaries.
	Herald, Testenv, HAProxy string
	// Only leaves out the parts that are not named; empty takes all. [BalancerParts] are the names.
	Only []string
	// Trials is how many trials there are of a fault or change. Of loads there are twice as many rounds.
	Trials int
	// Quick measures everything a few times, and shortly.
	Quick bool
	// Logs is a folder that is to keep the labs' configurations and logs; empty keeps none.
	Logs string
}

// BalancerParts are the names that BalancerOptions.Only takes, in the order of a run.
func BalancerParts() []string {
	return []string{local, remote, "faults", "masters", "restarts"}
}

// The ways that connections go.
const (
	direct        = "direct"
	directAgain   = "direct, again"   // the same, to see what a comparison can tell apart
	directTracked = "direct, tracked" // from a machine that tracks connections, as Herald does there
	forwarded     = "forwarded"       // by a machine that does not balance
	viaHerald     = "herald"
	viaProxy      = "herald, proxy"
	viaHAProxy    = "haproxy"
	viaHAProxySpl = "haproxy, splice"
)

// The workers that each has to itself.
const (
	heraldWorker, haproxyWorker, directWorker, proxyWorker, trackingWorker = "w1", "w2", "w3", "w4", "w5"
)

// balancerScale is how much is measured.
type balancerScale struct {
	rounds      int           // of each load, the ways in turn
	last        time.Duration // of one load
	rate        int           // connections a second, of the open loop
	pacedCount  int           // connections at that rate, of one way in a round
	streamTurns int           // of one stream in a round
	trials      int           // of a fault or change
	rivals      int           // of those that are of the rival only to compare
	spread      int           // connections
	held        int           // established connections, over a restart
	fewer       int           // over a drain
	before      time.Duration // a fault
	after       time.Duration // a fault that tells of itself
	vanishing   time.Duration // after one that does not
	followed    time.Duration // how long is waited for all workers to follow
}

func (o BalancerOptions) scale() balancerScale {
	s := balancerScale{rounds: 2 * o.Trials, last: 350 * time.Millisecond, rate: 1000, pacedCount: 800, streamTurns: 6,
		trials: o.Trials, rivals: min(3, o.Trials), spread: 3000, held: 5000, fewer: 300,
		before: 300 * time.Millisecond, after: time.Second, vanishing: 2 * time.Second, followed: 3 * time.Second}
	if o.Quick {
		s.rounds, s.last, s.pacedCount, s.trials, s.rivals, s.held, s.followed = 1, 250*time.Millisecond, 200, 1, 1, 500, 1500*time.Millisecond
	}
	return s
}

// balancerBench is a run.
type balancerBench struct {
	BalancerOptions
	balancerScale
	out     io.Writer
	dir     string
	results BalancerResults
}

// RunBalancers measures and tells on out how it goes. When ctx ends, or something cannot
// be measured, it returns what it has along with the error.
func RunBalancers(ctx context.Context, out io.Writer, o BalancerOptions) (_ *BalancerResults, err error) {
	for _, name := range o.Only {
		if !slices.Contains(BalancerParts(), name) {
			return nil, fmt.Errorf("there is no part %q; there are %s", name, strings.Join(BalancerParts(), ", "))
		}
	}
	b := &balancerBench{BalancerOptions: o, balancerScale: o.scale(), out: out, dir: o.Logs}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	}
	defer func() { b.results.Took = time.Since(b.results.Began).Truncate(time.Second) }()
	b.results.Setting = Setting{Began: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Versions: b.versions(ctx)}
	for _, part := range []struct {
		name string
		run  func(*balancerStage, context.Context) error
	}{
		{local, (*balancerStage).localPart},
		{remote, (*balancerStage).remotePart},
		{"faults", (*balancerStage).faultPart},
		{"masters", (*balancerStage).mastersPart},
		{"restarts", (*balancerStage).restartPart},
	} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, part.name) {
			continue
		}
		fmt.Fprintf(out, "%s:\n", part.name)
		if e := b.stage(ctx, part.name, part.run); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", part.name, e))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return &b.results, err
}

// versions are those of the programs that are measured.
func (b *balancerBench) versions(ctx context.Context) map[string]string {
	list := make(map[string]string)
	if v, ok := versions(ctx, b.Herald)["Herald"]; ok {
		list["Herald"] = v
	}
	if said, err := exec.CommandContext(ctx, b.HAProxy, "-v").Output(); err == nil {
		list["HAProxy"] = string(regexp.MustCompile(`\d+(\.\d+)+`).Find(said))
	}
	return list
}

// balancerStage is a lab, in which one part is measured.
type balancerStage struct {
	*balance.Lab
	*balancerBench
}

func (b *balancerBench) stage(ctx context.Context, part string, run func(*balancerStage, context.Context) error) (err error) {
	dir := filepath.Join(b.dir, part)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := balance.Start(ctx, balance.Options{Herald: b.Herald, Testenv: b.Testenv, HAProxy: b.HAProxy, Proxy: proxyOf(part), Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s := &balancerStage{Lab: l, balancerBench: b}
	for _, m := range voters() {
		if err := errors.Join(s.Server(m).Boot(ctx), s.Speaker(m).Boot(ctx)); err != nil {
			return err
		}
	}
	return run(s, ctx)
}

// proxyOf is the worker that balances in user space in a part.
func proxyOf(part string) string {
	if part == local || part == remote {
		return proxyWorker
	}
	return ""
}

// voters are the masters that are always there.
func voters() []string { return balance.MasterNames()[:balance.Masters-1] }

// target is where a balancer listens, for the clients on its own machine and for others.
func target(worker, path string, port int) string {
	if path == local {
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	return fmt.Sprintf("%s:%d", balance.Address(worker), port)
}

// settleBalancers is how long a balancer may take until it leads to all masters.
const settleBalancers = 30 * time.Second

// settled waits until the balancer on a worker leads to just these masters: until as many
// connections as could not miss one have been answered by them all, and by nobody else.
func (s *balancerStage) settled(ctx context.Context, worker string, masters ...string) error {
	ctx, cancel := context.WithTimeout(ctx, settleBalancers)
	defer cancel()
	err := balance.Eventually(ctx, func() error {
		seen := make(map[string]bool)
		for range 8 * len(masters) {
			name, err := s.Ask(ctx, worker, target(worker, local, balance.ListenPort))
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
	if err != nil {
		return fmt.Errorf("the balancer on %s does not lead to %v: %w", worker, masters, err)
	}
	return nil
}

// boot boots a program on these workers, and waits until it balances.
func (s *balancerStage) boot(ctx context.Context, program func(worker string) *lab.Node, workers ...string) error {
	for _, w := range workers {
		if err := program(w).Boot(ctx); err != nil {
			return err
		}
	}
	for _, w := range workers {
		if err := s.settled(ctx, w, voters()...); err != nil {
			return err
		}
	}
	return nil
}

// note adds values of one measure to the results, to those that are there already.
func (b *balancerBench) note(balancer string, m BalancerMeasure, path string, values ...float64) {
	for i, f := range b.results.Figures {
		if f.Balancer == balancer && f.Measure == m && f.Path == path {
			b.results.Figures[i].Values = append(f.Values, values...)
			return
		}
	}
	b.results.Figures = append(b.results.Figures, BalancerFigure{Balancer: balancer, Measure: m, Path: path, Values: values})
}

// bootBoth boots Herald and HAProxy, each on its worker.
func (s *balancerStage) bootBoth(ctx context.Context) error {
	if err := s.boot(ctx, s.Speaker, heraldWorker); err != nil {
		return err
	}
	return s.boot(ctx, s.HAProxy, haproxyWorker)
}

// tell says what there is of one part, from the given figure on.
func (b *balancerBench) tell(from int) {
	for _, f := range b.results.Figures[from:] {
		fmt.Fprintf(b.out, "  %-56s %-6s %-15s %s\n", f.Measure, f.Path, f.Balancer, f.text())
	}
}
