package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
)

// FlatOptions say what to run on the flat topology, and for how long.
type FlatOptions struct {
	// Topology is the path of flat.clab.yml.
	Topology string
	// Herald is the path of the binary under test, built with -race; Testenv
	// that of the stub servers'.
	Herald, Testenv string
	// Dir receives the nodes' logs and configurations, and the report.
	Dir string
	// Faults is how many to make at least; the round that is under way then is
	// finished.
	Faults int
	// Storm is how long the faults of one round last. Default: 40 s.
	Storm time.Duration
	// Seed determines the faults.
	Seed uint64
	// Lease is the election's. Default: 600 ms.
	Lease time.Duration
	// Limits are what the observer judges by. Default: [segment.DefaultLimits].
	Limits segment.Limits
	// Back is how long after the last fault was mended the VIP may still be
	// nobody's. Default: 5 s.
	Back time.Duration
}

// flatRun is a soak under way on the flat topology.
type flatRun struct {
	FlatOptions
	log      *slog.Logger
	rec      *recorder
	site     *site
	segment  *segment.Observer
	injector *injector
	load     *load
	schedule Schedule
	samples  []Sample
	witness  witness
	faults   int
	// offset is the observer's clock when the recorder's began.
	offset time.Duration
}

// RunFlat lets speakers on one segment live through random faults, several at a
// time, until there were enough, with an observer on the segment that finds
// every time two masters had the VIP. Between storms it makes planned changes,
// which are to cost no connection, and wants the VIP to be somebody's.
func RunFlat(ctx context.Context, log *slog.Logger, o FlatOptions) (_ *FlatReport, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a soak needs root, for network namespaces: run it with sudo")
	}
	o.Storm, o.Lease, o.Back = cmp.Or(o.Storm, 40*time.Second), cmp.Or(o.Lease, 600*time.Millisecond), cmp.Or(o.Back, 5*time.Second)
	o.Limits = cmp.Or(o.Limits, segment.DefaultLimits())
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := removeLogs(o.Dir); err != nil {
		return nil, err
	}
	r := &flatRun{FlatOptions: o, log: log, schedule: flatSchedule(o.Seed, o.Storm)}
	log.Info("soak begins", "seed", o.Seed, "faults", o.Faults, "lease", o.Lease, "herald", o.Herald)
	if r.site, err = newFlatSite(ctx, slog.New(slog.DiscardHandler), o); err != nil {
		return nil, err
	}
	if r.segment, err = segment.Observe(r.site.Node(stranger), segment.Flat(r.site.Lab)); err != nil {
		return nil, errors.Join(err, r.site.Close())
	}
	r.rec = newRecorder()
	r.witness = witness{rec: r.rec, looks: make(map[string]int)}
	r.offset = r.segment.Clock() - r.rec.clock()
	r.injector = newInjector(r.site, r.rec, nil, r.schedule)
	r.injector.planned = r.segment.Move
	probes, err := r.observe(ctx)
	trace, seen := r.rec.snapshot(), r.segment.Trace()
	err = errors.Join(err, r.close())
	report := &FlatReport{
		Seed: o.Seed, Lease: o.Lease, Looks: r.witness.looks, Trace: &trace, Probes: probes, Samples: r.samples, Growth: Grow(r.samples),
		Violations: append(r.check(&trace, seen), CheckGrowth(r.samples)...),
	}
	report.count(seen, o.Limits)
	raced, failed := checkRaces(o.Dir)
	report.Violations = append(report.Violations, raced...)
	return report, errors.Join(err, failed, report.write(filepath.Join(o.Dir, "soak.json")))
}

// close ends the observation, and the lab with its speakers.
func (r *flatRun) close() error {
	for _, m := range masters {
		r.injector.ending(m)
	}
	err := errors.Join(r.segment.Close(), r.site.Close())
	r.injector.watching.Wait()
	return err
}

// observe boots the masters and goes through all rounds, while a client
// connects to the VIP.
func (r *flatRun) observe(ctx context.Context) (_ []*probe.Result, err error) {
	if err := r.site.Boot(ctx); err != nil {
		return nil, err
	}
	for _, m := range masters {
		r.injector.watchSpeaker(m)
	}
	if err := r.settle(ctx); err != nil {
		return nil, fmt.Errorf("nobody came to hold the VIP, see the logs of the nodes: %w", err)
	}
	r.rec.add(func(t *Trace, now time.Duration) { t.Ready = now })
	loading, stop := context.WithCancel(context.WithoutCancel(ctx))
	stalls := newObservers(r.rec)
	stalls.stalls(loading)
	defer func() { stop(); r.witness.running.Wait(); err = errors.Join(err, stalls.wait()) }()
	for _, m := range masters {
		r.witness.watch(loading, m, r.site.Node(m+"-speaker"))
	}
	r.load = startLoad(loading, r.site.Node("c1"), flatVIPs()...)
	for n := 0; ctx.Err() == nil && (n == 0 || r.faults < r.Faults) && err == nil; n++ {
		err = r.round(ctx, n)
	}
	stop()
	probes, failed := r.load.wait()
	return probes, errors.Join(err, failed)
}

// round makes a storm and, if the VIP recovers from it, a planned change.
func (r *flatRun) round(ctx context.Context, n int) error {
	r.log.Info("storm", "round", n, "at", clock(r.rec.clock()))
	if err := r.storm(ctx, n); err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		r.log.Error("the VIP does not come back", "why", err)
		return nil // the silence is found by its rule
	}
	return r.quiet(ctx, n)
}

func (r *flatRun) storm(ctx context.Context, n int) error {
	faults, failed := errgroup.WithContext(ctx)
	began := time.Now()
	for _, f := range r.schedule.Round(n) {
		r.faults++
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

// settle waits until all masters can have recovered, and one of them holds the VIP.
func (r *flatRun) settle(ctx context.Context) error {
	pause(ctx, r.Back)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.segment.Await(ctx)
	return err
}

// quiet takes the VIP from its holder as planned while all else is well, and
// measures the speakers.
func (r *flatRun) quiet(ctx context.Context, n int) error {
	holder, err := r.segment.Await(ctx)
	if err != nil {
		return err
	}
	f := r.schedule.Planned(n)
	f.Master = holder
	r.log.Info("planned change", "at", clock(r.rec.clock()), "what", f.String())
	r.load.open(Window{Span: Span{From: r.rec.clock()}, Change: f})
	err = r.injector.inflict(ctx, f)
	pause(ctx, moment)
	w := r.load.close()
	if err != nil {
		return err
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

// check judges what was seen.
func (r *flatRun) check(t *Trace, seen *segment.Trace) (found []Violation) {
	for _, v := range segment.Judge(seen, r.Limits) {
		at := v.From - r.offset
		found = append(found, Violation{at, Rule(v.Rule), v.String(), slices.Concat(faultsAround(t, at), v.Around)})
	}
	for _, vip := range flatVIPs() {
		for _, gap := range r.unheld(t, seen.Silences(vip, silent)) {
			found = append(found, Violation{gap.From, Missing, fmt.Sprintf("nobody answers for %s until %s, though nothing is wrong", vip, clock(gap.To)), faultsAround(t, gap.From)})
		}
	}
	for _, v := range r.witness.found {
		v.Around = faultsAround(t, v.At)
		found = append(found, v)
	}
	for _, c := range t.Crashes {
		found = append(found, Violation{c.At, Crashed, fmt.Sprintf("the speaker of %s ended: %s", c.Master, c.Reason), nil})
	}
	for _, w := range t.Windows {
		if n, ok := w.dropped(); ok && !r.starved(t, w.Span) {
			found = append(found, Violation{w.From, Dropped, fmt.Sprintf("%s, all else well, cost %d of %d connections: %v", w.Change, n, w.Attempts, w.Failures), nil})
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return found
}

// faultsAround lists the faults that were on in the time before an instant.
func faultsAround(t *Trace, at time.Duration) (lines []string) {
	const before = 8 * time.Second
	for _, i := range t.Incidents {
		if i.Began <= at && (i.Mended == Never || i.Mended > at-before) {
			lines = append(lines, i.String())
		}
	}
	return lines
}

// starved reports whether the machine was so busy in a span that this process did
// not get to run for a good part of a lease. A speaker may not have either, and
// then its lease ended by right.
func (r *flatRun) starved(t *Trace, s Span) bool {
	return t.stalled(Span{s.From - moment, s.To}) > r.Lease/4
}

// silent is how many questions in a row without an answer are a silence.
const silent = 10

// unheld returns the silences, by the recorder's clock, in which the VIP was to
// be somebody's: everybody was up, no fault was on and none had been for a
// while, and the machine was not too busy.
func (r *flatRun) unheld(t *Trace, silences []segment.Silence) (gaps []Span) {
	excuses := []Span{{0, t.Ready}}
	for _, i := range t.Incidents {
		e := Span{i.Began, Never}
		if i.Mended != Never {
			e.To = i.Mended + r.Back
		}
		excuses = append(excuses, e)
	}
	for _, due := range without(Span{0, t.End}, excuses) {
		for _, s := range silences {
			gap := Span{max(s.From-r.offset, due.From), min(s.To-r.offset, due.To)}
			if gap.From < gap.To && !r.starved(t, gap) {
				gaps = append(gaps, gap)
			}
		}
	}
	return gaps
}
