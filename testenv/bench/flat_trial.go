package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
)

// trial makes a fault on the holder and returns what clients and observer saw.
// The segment is at rest before and after.
func (f *flat) trial(ctx context.Context, fault flatFault, connections int) (Trial, error) {
	t := Trial{Speaker: f.speaker.name(), Fault: fault.name, Planned: fault.planned, Router: NoRouter, Limit: cmp.Or(fault.limit, usualLimit)}
	before, err := neighbourOverflows()
	if err != nil {
		return t, err
	}
	w, err := f.watch(ctx, fault.identify)
	if err != nil {
		return t, err
	}
	s, err := f.measure(ctx, fault, &t, connections, w)
	results, trace, e := w.end()
	if err := errors.Join(err, e); err != nil {
		return t, err
	}
	switch after, err := neighbourOverflows(); {
	case err != nil:
		return t, err
	case after != before:
		return t, fmt.Errorf("%w: the kernel's table of neighbours was full, see net.ipv4.neigh.default.gc_thresh3", errDisturbed)
	}
	t.judge(trace, s.began)
	t.tellBoth(results, s.healed)
	return t, nil
}

// span is when a fault was made, by the observer's clock, and when it was undone.
type span struct {
	began  time.Duration
	healed time.Time
}

// measure makes the fault, undoes it, and returns when all is as before.
func (f *flat) measure(ctx context.Context, fault flatFault, t *Trial, connections int, w *watch) (s span, err error) {
	if err := pause(ctx, leadIn); err != nil {
		return s, err
	}
	t.Master = w.holder()
	if failed := w.failed(); t.Master == "" || failed > 0 {
		if err := f.settle(ctx, w); err != nil {
			return s, err
		}
		return s, fmt.Errorf("%w: %d of them, the VIP on %q", errFailedBefore, failed, t.Master)
	}
	deadline := time.Now().Add(t.Limit)
	strike := func() error { return fault.strike(ctx, f, t.Master) }
	s.began = w.seen.Clock()
	if fault.planned {
		err = w.seen.Move(t.Master, strike)
	} else {
		err = strike()
	}
	if err != nil {
		return s, err
	}
	if err := w.moved(ctx, t.Master, s.began, deadline); err != nil {
		return s, err
	}
	if at, ok := taken(w.seen.Trace(), flatVIPs(), t.Master, s.began); ok {
		t.Taken = &at
	}
	if err := quiet(ctx, w.clients, deadline); err != nil {
		return s, err
	}
	s.healed = time.Now()
	if fault.heal != nil {
		if err := fault.heal(ctx, f, t.Master); err != nil {
			return s, err
		}
	}
	if err := f.settle(ctx, w); err != nil {
		return s, fmt.Errorf("after the fault: %w", err)
	}
	if !fault.planned {
		return s, nil
	}
	return s, enough(ctx, w.clients, connections)
}

// judge notes for how long since an instant more than one master claimed the
// VIP, on the wire.
func (t *Trial) judge(trace *segment.Trace, since time.Duration) {
	t.Holders = 1
	until := make(map[netip.Addr]time.Duration) // of what is counted already: they come by their beginnings
	split := make(map[netip.Addr]time.Duration)
	for _, v := range segment.Judge(trace, segment.DefaultLimits()) {
		if v.From < since || v.Rule != segment.TwoHolders {
			continue
		}
		t.Holders = 2
		split[v.VIP] += max(0, v.To-max(v.From, until[v.VIP]))
		until[v.VIP] = max(until[v.VIP], v.To)
		t.Split = max(t.Split, split[v.VIP])
	}
}

// tellBoth fills in what the clients saw. In an unplanned fault what they saw
// after its end is told apart.
func (t *Trial) tellBoth(results []*probe.Result, healed time.Time) {
	var after time.Duration
	for _, r := range results {
		t.Late = max(t.Late, r.MaxDelay)
		before := r.Attempts
		if !t.Planned {
			end, _ := slices.BinarySearchFunc(r.Attempts, healed.Sub(r.Began), func(a probe.Attempt, at time.Duration) int { return cmp.Compare(a.Start, at) })
			before = r.Attempts[:end]
			late, _ := outage(r.Attempts[end:])
			after = max(after, late)
		}
		for _, a := range before {
			switch {
			case a.Outcome.Inconclusive():
				t.Starved++
				continue
			case a.Outcome.Failed():
				t.Failed++
			}
			t.Attempts++
		}
		d, open := outage(before)
		t.Outage, t.Open = max(t.Outage, d), t.Open || open
	}
	if !t.Planned {
		t.After = &after
	}
}
