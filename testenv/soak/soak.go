// Package soak lets real speakers live through hours of random faults and
// judges them from outside.
//
// It runs the bgp topology with FRR routers in a lab of namespaces, breaks and
// mends servers, speakers, links, routers and machines by a schedule that a
// seed determines, several at a time, while a client connects to the VIP all
// the time. It records what the routers' and the masters' kernels say of
// routes and addresses, asking Herald for nothing, and what it has broken
// itself. From this trace [Check] finds every time the VIP was announced
// where it should not have been, or was not where it should.
//
// [RunFlat] does likewise on the flat topology, where an observer on the
// segment is the witness (package segment) and two holders are what must not be.
package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/probe"
)

// Options say what to run, and for how long.
type Options struct {
	// Topology is the path of bgp.clab.yml.
	Topology string
	// Herald is the path of the binary under test, built with -race; Testenv
	// that of the stub servers'.
	Herald, Testenv string
	// Dir receives the nodes' logs and configurations, and the report.
	Dir string
	// Time is how long to go on; the round that is under way then is finished.
	Time time.Duration
	// Storm is how long the faults of one round last. Default: 40 s.
	Storm time.Duration
	// Seed determines the faults.
	Seed uint64
	// BFD is the interval of BFD between speakers and routers, three of which
	// may pass in silence. Default: no BFD.
	BFD time.Duration
	// Limits are what the speakers are held to. Default: [DefaultLimits].
	Limits Limits
}

// all is how many signs there are when everything is announced: a route for
// each router, master and family, and an address for each master and family.
const all = 3 * 2 * (2 + 1)

// run is a soak under way.
type run struct {
	Options
	log      *slog.Logger
	rec      *recorder
	site     *site
	obs      *observers
	injector *injector
	load     *load
	schedule Schedule

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
	o.Storm = cmp.Or(o.Storm, 40*time.Second)
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.BFD > 0 {
		o.Limits.BFD, o.Limits.Starved = 3*o.BFD+o.Limits.Router, o.BFD
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := removeLogs(o.Dir); err != nil {
		return nil, err
	}
	r := &run{Options: o, log: log, told: make(map[string]bool), schedule: newSchedule(o.Seed, o.Storm)}
	log.Info("soak begins", "seed", o.Seed, "time", o.Time, "herald", o.Herald)
	if r.site, err = newSite(ctx, slog.New(slog.DiscardHandler), o); err != nil {
		return nil, err
	}
	r.rec = newRecorder()
	r.obs = newObservers(r.rec)
	r.injector = newInjector(r.site, r.rec, r.obs, r.schedule)
	trace, results, err := r.observe(ctx)
	err = errors.Join(err, r.close())
	report := newReport(o, &trace, r.samples, results)
	raced, failed := checkRaces(o.Dir)
	report.Violations, err = append(report.Violations, raced...), errors.Join(err, failed)
	return report, errors.Join(err, report.write(filepath.Join(o.Dir, "soak.json")))
}

// newSchedule is that of the bgp topology.
func newSchedule(seed uint64, storm time.Duration) Schedule {
	return Schedule{
		Seed: seed, Masters: masters, Routers: routers, Survivor: masters[0], Storm: storm,
		kinds: traits(), wild: 800 * time.Millisecond, calm: 3 * time.Second,
	}
}

// removeLogs removes the nodes' logs of an earlier run, which would be added to.
func removeLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, l := range logs {
		err = errors.Join(err, os.Remove(l))
	}
	return err
}

// close ends the lab, which ends the speakers.
func (r *run) close() error {
	for _, m := range masters {
		r.injector.ending(m)
	}
	err := r.site.Close()
	r.injector.watching.Wait()
	return err
}

// observe watches the site, and its client, through all rounds.
func (r *run) observe(ctx context.Context) (trace Trace, results []*probe.Result, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { stop(); err = errors.Join(err, r.obs.wait()) }()
	r.obs.stalls(watching)
	for _, name := range routers {
		if err := r.obs.router(watching, r.site.Node(name)); err != nil {
			return trace, nil, err
		}
	}
	for _, name := range masters {
		r.injector.watchSpeaker(name)
		if err := r.obs.master(watching, r.site.Node(name)); err != nil {
			return trace, nil, err
		}
	}
	if !r.settle(ctx) {
		return r.rec.snapshot(), nil, errors.New("not every master came to be announced: see the logs of the nodes")
	}
	r.rec.add(func(t *Trace, now time.Duration) { t.Ready = now })
	r.log.Info("all masters are announced", "at", clock(r.rec.clock()))
	r.load = startLoad(watching, r.site.Node("client"), vip(4), vip(6))
	err = r.rounds(ctx)
	trace = r.rec.snapshot()
	stop()
	results, failed := r.load.wait()
	return trace, results, errors.Join(err, failed)
}

// rounds goes through storm and quiet until the time is over.
func (r *run) rounds(ctx context.Context) error {
	for n := 0; ctx.Err() == nil && (n == 0 || r.rec.clock() < r.Time); n++ {
		r.log.Info("storm", "round", n, "at", clock(r.rec.clock()))
		if err := r.storm(ctx, n); err != nil {
			return err
		}
		well := r.settle(ctx)
		r.tell()
		if well && ctx.Err() == nil {
			if err := r.quiet(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// storm makes the faults of a round and returns when all are undone.
func (r *run) storm(ctx context.Context, n int) error {
	faults, failed := errgroup.WithContext(ctx)
	began := time.Now()
	for _, f := range r.schedule.Round(n) {
		faults.Go(func() error {
			pause(failed, time.Until(began.Add(f.At)))
			if failed.Err() != nil {
				return nil
			}
			r.log.Info("fault", "at", clock(r.rec.clock()), "what", f.String(), "for", f.For.Round(time.Millisecond))
			return r.injector.inflict(failed, f)
		})
	}
	return faults.Wait()
}

// settle waits until everything is announced and stays so for a moment, and
// reports whether it came to that.
func (r *run) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		n, changed := r.rec.present()
		var quiet <-chan time.Time
		if n == all {
			quiet = time.After(moment)
		}
		select {
		case <-changed:
		case <-quiet:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// quiet makes one planned change while all else is well, and measures the
// speakers.
func (r *run) quiet(ctx context.Context, n int) error {
	f := r.schedule.Planned(n)
	r.log.Info("planned change", "at", clock(r.rec.clock()), "what", f.String())
	r.load.open(Window{Span: Span{From: r.rec.clock()}, Change: f})
	err := r.injector.inflict(ctx, f)
	well := r.settle(ctx)
	w := r.load.close()
	if err != nil || !well {
		return err // what is missing is found by the rules
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

// tell logs the violations that are new.
func (r *run) tell() {
	trace := r.rec.snapshot()
	found := Check(&trace, r.Limits)
	for _, v := range found {
		// What is missing is found again, for longer, each time.
		id := fmt.Sprint(v.At, v.Rule)
		if !r.told[id] {
			r.log.Error("violation", "what", v.String())
			r.told[id] = true
		}
	}
}
