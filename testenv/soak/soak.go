// Package soak runs real speakers through hours of random faults and judges them from outside.
//
// It runs the bgp topology with FRR routers, or the flat one, in a lab of namespaces.
// A seed determines a schedule of overlapping faults in servers, speakers, links,
// routers and machines, which it makes, mends and records. A client connects to the
// VIP throughout. Between these storms it makes planned changes, which must cost no
// connection.
//
// On the bgp topology it records the routes and addresses of the routers' and the
// masters' kernels, without asking Herald. From this trace [Check] finds every time
// the VIP was announced wrongly, or was not announced although it had to be. On the
// flat topology an observer on the link is the witness (package holders): two holders
// at once are a violation.
package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/step"
	"github.com/herald-vip/herald/testenv/traffic"
)

// Options select the run and its length.
type Options struct {
	// Flat selects the flat topology.
	Flat bool
	// Topology is the path of bgp.clab.yml or flat.clab.yml.
	Topology string
	// Herald is the path of the binary under test, built with -race; Testenv is that of the stub
	// servers.
	Herald, Testenv string
	// Dir receives the nodes' logs and configurations, and the report.
	Dir string
	// Time and Faults are the least duration and the least number of faults; the round in
	// progress then completes.
	Time   time.Duration
	Faults int
	// Storm is how long the faults of one round last. Default: 40 s.
	Storm time.Duration
	// Seed determines the faults.
	Seed uint64

	// BFD is the interval of BFD between speakers and routers, with a multiplier of
	// three. Default: no BFD.
	BFD time.Duration
	// Slack is added to every bound of the speakers of the bgp topology, for a busy
	// machine. Default: 1 s.
	Slack time.Duration

	// Lease is the election's lease on the flat topology. Default: 600 ms.
	Lease time.Duration
	// Join makes the masters of the flat topology join the first one, instead of listing them.
	Join bool
}

// complete sets the defaults.
func (o *Options) complete() {
	o.Storm = cmp.Or(o.Storm, 40*time.Second)
	if o.Flat {
		o.Lease = cmp.Or(o.Lease, 600*time.Millisecond)
	}
}

// limits returns the bounds for the speakers of the bgp topology.
func (o *Options) limits() Limits {
	l := DefaultLimits()
	l.Slack = cmp.Or(o.Slack, l.Slack)
	if o.BFD > 0 {
		l.BFD, l.Starved = 3*o.BFD+withdrawal, o.BFD
	}
	return l
}

// witness observes a topology and judges its observations.
type witness interface {
	// start begins to observe, until ctx ends.
	start(ctx context.Context) error
	// Wait waits for the end of the observation and returns its errors.
	Wait() error
	// awaitRecovery waits until the state is as without faults.
	awaitRecovery(ctx context.Context) error
	// Move makes a planned change of a master and records it.
	Move(master string, change func() error) error
	// holder returns the one master that has the VIP, or "" if several may.
	holder(ctx context.Context) (string, error)
	// check returns the violations observed.
	check(t *Trace) []Violation
	// report adds the observations to the report.
	report(r *Report)
	Close() error
}

// run is a soak in progress.
type run struct {
	Options
	injector
	log     *slog.Logger
	load    *traffic.Client
	samples []Sample
	logged  map[string]bool // violations already logged
}

// Run soaks until the time is over or ctx ends, and reports the violations. An error
// concerns the soak itself, and may come with a report of the run until then.
func Run(ctx context.Context, log *slog.Logger, o Options) (_ *Report, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a soak needs root, for network namespaces: run it with sudo")
	}
	o.complete()
	r := &run{Options: o, log: log, logged: make(map[string]bool), injector: injector{
		rec: newRecorder(), schedule: newSchedule(o), ended: make(map[int]bool), parts: make(map[string]*sync.Mutex),
	}}
	if err := step.Run(func() { r.prepare(ctx) }); err != nil {
		return nil, err
	}
	trace, probes, err := r.observe(ctx)
	report := &Report{
		Seed: o.Seed, Lease: o.Lease, Limits: o.limits(), Trace: &trace, Samples: r.samples, Probes: probes, Growth: Grow(r.samples),
		Violations: append(r.witness.check(&trace), CheckGrowth(r.samples)...),
	}
	r.witness.report(report)
	err = errors.Join(err, r.close())
	raced, failed := checkRaces(r.Dir)
	report.Violations = append(report.Violations, raced...)
	return report, errors.Join(err, failed, report.write(filepath.Join(r.Dir, "soak.json")))
}

// prepare lays out the site and begins to observe it.
func (r *run) prepare(ctx context.Context) {
	r.Dir = step.Get(filepath.Abs(r.Dir))
	step.Do(os.MkdirAll(filepath.Join(r.Dir, "configs"), 0o755))
	for _, log := range step.Get(filepath.Glob(filepath.Join(r.Dir, "*.log"))) {
		step.Do(os.Remove(log)) // of an earlier run, because new logs are appended
	}
	r.log.Info("soak begins", "seed", r.Seed, "time", r.Time, "faults", r.Faults, "herald", r.Herald)
	r.site = newSite(ctx, r.Options)
	if !r.Flat {
		r.witness = &bgpWitness{stallWatch: stallWatch{rec: r.rec}, site: r.site, limits: r.limits()}
		return
	}
	seen, err := holders.Observe(r.site.Node(stranger), holders.Flat(r.site.Lab))
	if err != nil {
		step.Do(errors.Join(err, r.site.Close()))
	}
	r.witness = &flatWitness{
		stallWatch: stallWatch{rec: r.rec}, site: r.site, Observer: seen, offset: seen.Clock() - r.rec.clock(),
		lease: r.Lease, looks: make(map[string]int),
	}
}

// close ends the observation and the lab with its speakers.
func (r *run) close() error {
	r.ending(masters...)
	err := errors.Join(r.witness.Close(), r.site.Close())
	r.watching.Wait()
	return err
}

// observe boots the site, and watches it and its client through all rounds.
func (r *run) observe(ctx context.Context) (trace Trace, probes []*probe.Result, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { stop(); err = errors.Join(err, r.witness.Wait()) }()
	err = step.Run(func() {
		step.Do(r.witness.start(watching))
		step.Do(r.site.Boot(ctx))
		r.watchSpeakers(masters...)
		step.Doing("the VIP was never announced, see the logs of the nodes", r.witness.awaitRecovery(ctx))
		r.rec.add(func(t *Trace, now time.Duration) { t.Ready = now })
		r.log.Info("the VIP is announced", "at", clock(r.rec.clock()))
		// The timeout is below a second, so that a SYN retransmission does not hide a lost
		// SYN, and long enough for a busy machine.
		r.load = traffic.Start(watching, r.site.client(), traffic.Options{Timeout: 250 * time.Millisecond}, r.site.vips()...)
		step.Do(r.rounds(ctx))
	})
	trace = r.rec.snapshot()
	stop()
	if r.load == nil {
		return trace, nil, err
	}
	probes, failed := r.load.Wait()
	return trace, probes, errors.Join(err, failed)
}

// rounds makes storms and, after each from which the VIP recovers, a planned change.
func (r *run) rounds(ctx context.Context) error {
	faults := 0
	for n := 0; ctx.Err() == nil && (n == 0 || r.rec.clock() < r.Time || faults < r.Faults); n++ {
		r.log.Info("storm", "round", n, "at", clock(r.rec.clock()))
		list := r.schedule.Round(n)
		faults += len(list)
		if err := r.storm(ctx, list); err != nil {
			return err
		}
		err := r.witness.awaitRecovery(ctx)
		r.logViolations()
		if err != nil {
			r.log.Error("the VIP does not come back", "why", err) // the rules report the missing signs
		} else if err := r.changePlanned(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// storm makes the faults of a round and returns when all are undone.
func (r *run) storm(ctx context.Context, list []Fault) error {
	faults, failed := errgroup.WithContext(ctx)
	began := time.Now()
	for _, f := range list {
		faults.Go(func() error {
			pause(failed, time.Until(began.Add(f.At)))
			if failed.Err() != nil {
				return nil
			}
			r.log.Info("fault", "at", clock(r.rec.clock()), "what", f.String(), "for", f.For.Round(time.Millisecond))
			return r.inflict(failed, f)
		})
	}
	return faults.Wait()
}

// changePlanned makes one planned change while no fault is active, and measures the speakers.
func (r *run) changePlanned(ctx context.Context, n int) error {
	f := r.schedule.Planned(n)
	holder, err := r.witness.holder(ctx)
	if err != nil {
		return err
	}
	f.Master = cmp.Or(holder, f.Master)
	r.log.Info("planned change", "at", clock(r.rec.clock()), "what", f.String())
	w := Window{Span: Span{From: r.rec.clock()}, Change: f}
	r.load.Mark()
	err = r.inflict(ctx, f)
	missing := r.witness.awaitRecovery(ctx)
	w.Count = r.load.Count()
	if err != nil || missing != nil {
		return err // the rules report the missing signs
	}
	r.rec.add(func(t *Trace, now time.Duration) {
		w.To = now
		t.Windows = append(t.Windows, w)
	})
	for _, m := range masters {
		s, err := measure(ctx, r.site.Node(m+"-speaker"))
		if err != nil {
			return fmt.Errorf("measure %s: %w", m, err)
		}
		s.At, s.Master = r.rec.clock(), m
		r.samples = append(r.samples, s)
	}
	return nil
}

// logViolations logs the new violations.
func (r *run) logViolations() {
	trace := r.rec.snapshot()
	for _, v := range r.witness.check(&trace) {
		// Each check finds the same gap again, but longer.
		id := fmt.Sprint(v.At, v.Rule)
		if !r.logged[id] {
			r.log.Error("violation", "what", v.String())
			r.logged[id] = true
		}
	}
}

// stallWatch records the times that this process did not run. Its group holds the
// witness's goroutines.
type stallWatch struct {
	errgroup.Group
	rec *recorder
}

const (
	// pulse is the interval at which this process should run; more than stall late counts as a stall.
	pulse = 10 * time.Millisecond
	stall = 50 * time.Millisecond
)

func (w *stallWatch) watchStalls(ctx context.Context) {
	due := w.rec.clock() + pulse
	w.every(ctx, pulse, nil, func() error {
		if now := w.rec.clock(); now-due > stall {
			w.rec.add(func(t *Trace, _ time.Duration) { t.Stalls = append(t.Stalls, Span{due, now}) })
		}
		due = w.rec.clock() + pulse
		return nil
	})
}

// every calls look at each interval, and when woken, until ctx ends or a look fails.
func (w *stallWatch) every(ctx context.Context, interval time.Duration, wake <-chan struct{}, look func() error) {
	w.Go(func() error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-wake:
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
			if err := look(); err != nil {
				return err
			}
		}
	})
}
