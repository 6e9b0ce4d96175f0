// Package soak lets real speakers live through hours of random faults and
// judges them from outside.
//
// It runs the bgp topology with FRR routers, or the flat one, in a lab of
// namespaces, breaks and mends servers, speakers, links, routers and machines by
// a schedule that a seed determines, several at a time, while a client connects
// to the VIP all the time, and records what it has broken. Between these storms
// it makes planned changes, which are to cost no connection.
//
// On the bgp topology it records what the routers' and the masters' kernels say of
// routes and addresses, asking Herald for nothing. From this trace [Check] finds
// every time the VIP was announced where it should not have been, or was not where
// it should. On the flat topology an observer on the link is the witness (package
// holders), and two holders are what must not be.
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
	"github.com/herald-vip/herald/testenv/traffic"
)

// Options say what to run, and for how long.
type Options struct {
	// Flat chooses the flat topology.
	Flat bool
	// Topology is the path of bgp.clab.yml or flat.clab.yml.
	Topology string
	// Herald is the path of the binary under test, built with -race; Testenv
	// that of the stub servers'.
	Herald, Testenv string
	// Dir receives the nodes' logs and configurations, and the report.
	Dir string
	// Time is how long to go on, and Faults how many to make, at least; the round
	// that is under way then is finished.
	Time   time.Duration
	Faults int
	// Storm is how long the faults of one round last. Default: 40 s.
	Storm time.Duration
	// Seed determines the faults.
	Seed uint64

	// BFD is the interval of BFD between speakers and routers, three of which
	// may pass in silence. Default: no BFD.
	BFD time.Duration
	// Slack is added to every bound that the speakers of the bgp topology are held to, for a
	// machine that is busy. Default: 1 s.
	Slack time.Duration

	// Lease is the election's on the flat topology. Default: 600 ms.
	Lease time.Duration
	// Join has the masters of the flat topology join the first one, instead of being listed.
	Join bool
}

// complete fills in the defaults.
func (o *Options) complete() {
	o.Storm = cmp.Or(o.Storm, 40*time.Second)
	if o.Flat {
		o.Lease = cmp.Or(o.Lease, 600*time.Millisecond)
	}
}

// limits are what the speakers of the bgp topology are held to.
func (o *Options) limits() Limits {
	l := DefaultLimits()
	l.Slack = cmp.Or(o.Slack, l.Slack)
	if o.BFD > 0 {
		l.BFD, l.Starved = 3*o.BFD+l.Router, o.BFD
	}
	return l
}

// witness observes a topology, and judges what it saw.
type witness interface {
	// start begins to observe, until ctx ends.
	start(ctx context.Context) error
	// Wait returns when the observation has ended, and what failed of it.
	Wait() error
	// awaitRecovery waits until all is as it is when nothing is wrong.
	awaitRecovery(ctx context.Context) error
	// Move makes a planned change of a master, for the record.
	Move(master string, change func() error) error
	// holder is the one master that has the VIP, if there is to be but one.
	holder(ctx context.Context) (string, error)
	// check judges what was seen.
	check(t *Trace) []Violation
	// report adds what was seen to the report.
	report(r *Report)
	Close() error
}

// run is a soak under way.
type run struct {
	Options
	injector
	log     *slog.Logger
	load    *traffic.Client
	samples []Sample
	told    map[string]bool // violations that were logged
}

// Run soaks until the time is over or ctx ends, and reports what it found. The
// error is of the soak itself, and may come with a report of what happened
// until then; violations are in the report.
func Run(ctx context.Context, log *slog.Logger, o Options) (_ *Report, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a soak needs root, for network namespaces: run it with sudo")
	}
	o.complete()
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := removeLogs(o.Dir); err != nil {
		return nil, err
	}
	log.Info("soak begins", "seed", o.Seed, "time", o.Time, "faults", o.Faults, "herald", o.Herald)
	r := &run{Options: o, log: log, told: make(map[string]bool), injector: injector{
		rec: newRecorder(), schedule: newSchedule(o), ended: make(map[int]bool), parts: make(map[string]*sync.Mutex),
	}}
	if r.site, err = newSite(ctx, o); err != nil {
		return nil, err
	}
	if r.witness, err = r.newWitness(); err != nil {
		return nil, errors.Join(err, r.site.Close())
	}
	trace, probes, err := r.observe(ctx)
	report := &Report{
		Seed: o.Seed, Lease: o.Lease, Limits: o.limits(), Trace: &trace, Samples: r.samples, Probes: probes, Growth: Grow(r.samples),
		Violations: append(r.witness.check(&trace), CheckGrowth(r.samples)...),
	}
	r.witness.report(report)
	err = errors.Join(err, r.close())
	raced, failed := checkRaces(o.Dir)
	report.Violations = append(report.Violations, raced...)
	return report, errors.Join(err, failed, report.write(filepath.Join(o.Dir, "soak.json")))
}

func (r *run) newWitness() (witness, error) {
	if !r.Flat {
		return &bgpWitness{stallWatch: stallWatch{rec: r.rec}, site: r.site, limits: r.limits()}, nil
	}
	seen, err := holders.Observe(r.site.Node(stranger), holders.Flat(r.site.Lab))
	if err != nil {
		return nil, err
	}
	return &flatWitness{
		stallWatch: stallWatch{rec: r.rec}, site: r.site, Observer: seen, offset: seen.Clock() - r.rec.clock(),
		lease: r.Lease, looks: make(map[string]int),
	}, nil
}

// removeLogs removes the nodes' logs of an earlier run, which would be added to.
func removeLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, l := range logs {
		err = errors.Join(err, os.Remove(l))
	}
	return err
}

// close ends the observation, and the lab with its speakers.
func (r *run) close() error {
	r.ending(masters...)
	err := errors.Join(r.witness.Close(), r.site.Close())
	r.watching.Wait()
	return err
}

// observe boots the site and watches it, and its client, through all rounds.
func (r *run) observe(ctx context.Context) (trace Trace, probes []*probe.Result, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { stop(); err = errors.Join(err, r.witness.Wait()) }()
	if err := r.witness.start(watching); err != nil {
		return trace, nil, err
	}
	if err := r.site.Boot(ctx); err != nil {
		return trace, nil, err
	}
	r.watchSpeakers(masters...)
	if err := r.witness.awaitRecovery(ctx); err != nil {
		return r.rec.snapshot(), nil, fmt.Errorf("the VIP did not come to be announced, see the logs of the nodes: %w", err)
	}
	r.rec.add(func(t *Trace, now time.Duration) { t.Ready = now })
	r.log.Info("the VIP is announced", "at", clock(r.rec.clock()))
	// The timeout is below a second, so that a lost SYN is not made good by the next, and
	// long enough for a machine that is busy.
	r.load = traffic.Start(watching, r.site.client(), traffic.Options{Timeout: 250 * time.Millisecond}, r.site.vips()...)
	err = r.rounds(ctx)
	trace = r.rec.snapshot()
	stop()
	probes, failed := r.load.Wait()
	return trace, probes, errors.Join(err, failed)
}

// rounds makes storms and, after those from which the VIP recovers, planned changes.
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
			r.log.Error("the VIP does not come back", "why", err) // the rules find what is missing
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

// changePlanned makes one planned change while all else is well, and measures the
// speakers.
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
		return err // the rules find what is missing
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

// logViolations logs those that are new.
func (r *run) logViolations() {
	trace := r.rec.snapshot()
	for _, v := range r.witness.check(&trace) {
		// What is missing is found again, for longer, each time.
		id := fmt.Sprint(v.At, v.Rule)
		if !r.told[id] {
			r.log.Error("violation", "what", v.String())
			r.told[id] = true
		}
	}
}

// stallWatch notes the times in which this process did not get to run. Its group are the
// goroutines of a witness.
type stallWatch struct {
	errgroup.Group
	rec *recorder
}

const (
	// pulse is how often this process is to run, and stall how late it may be
	// before the time counts as a stall.
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

// every looks once in an interval, and when it is woken, until ctx ends or a look fails.
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
