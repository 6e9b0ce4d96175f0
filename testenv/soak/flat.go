package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
)

// unheldFor bounds how long after the last fault was mended the VIP of the flat topology
// may lack a holder.
const unheldFor = 5 * time.Second

// flatWitness observes from the link, and reads the masters' kernels.
type flatWitness struct {
	stallWatch
	*holders.Observer
	site  *site
	lease time.Duration
	// offset is the observer's clock when the recorder's began.
	offset time.Duration

	looking sync.Mutex     // guards the fields below
	looks   map[string]int // by stage
	found   []Violation
}

func (w *flatWitness) start(ctx context.Context) error {
	w.watchStalls(ctx)
	for _, m := range masters {
		w.watchKernel(ctx, m)
	}
	return nil
}

// awaitRecovery waits until all masters can have recovered and one of them holds the VIP.
func (w *flatWitness) awaitRecovery(ctx context.Context) error {
	pause(ctx, unheldFor)
	_, err := w.holder(ctx)
	return err
}

func (w *flatWitness) holder(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return w.Await(ctx)
}

// report adds the observer's counts to r.
func (w *flatWitness) report(r *Report) {
	seen := w.Trace()
	r.Looks, r.Strangers = w.looks, seen.Strangers
	for _, vip := range w.site.vips() {
		r.Questions += len(seen.Questions[vip])
		r.Holders += max(0, len(seen.Reigns(vip, holders.DefaultLimits()))-1)
	}
	for _, s := range seen.Observations {
		if s.Act == holders.Answers {
			r.Answers++
		}
	}
}

// check returns the violations that the observer and the kernel readings show.
func (w *flatWitness) check(t *Trace) (found []Violation) {
	seen := w.Trace()
	for _, v := range holders.Judge(seen, holders.DefaultLimits()) {
		at := v.From - w.offset
		found = append(found, Violation{at, Rule(v.Rule), v.String(), slices.Concat(faultsAround(t, at), v.Around)})
	}
	for _, vip := range w.site.vips() {
		for _, gap := range w.unheld(t, seen.Silences(vip, silent)) {
			found = append(found, Violation{gap.From, Missing, fmt.Sprintf("no master answers for %s until %s, although no fault explains it", vip, clock(gap.To)), faultsAround(t, gap.From)})
		}
	}
	w.looking.Lock()
	for _, v := range w.found {
		v.Around = faultsAround(t, v.At)
		found = append(found, v)
	}
	w.looking.Unlock()
	return inOrder(append(found, t.mishaps(func(s Span) bool { return w.starved(t, s) })...))
}

// faultsAround lists the faults that were active shortly before an instant.
func faultsAround(t *Trace, at time.Duration) (lines []string) {
	const before = 8 * time.Second
	for _, i := range t.Incidents {
		if i.Began <= at && (i.Mended == Never || i.Mended > at-before) {
			lines = append(lines, i.String())
		}
	}
	return lines
}

// starved reports whether this process did not run for a quarter of a lease during the
// span. A speaker may then have stalled too, and lost its lease rightly.
func (w *flatWitness) starved(t *Trace, s Span) bool {
	return t.stalled(Span{s.From - moment, s.To}) > w.lease/4
}

// silent is the number of consecutive unanswered probes that count as a silence.
const silent = 10

// unheld returns the silences, by the recorder's clock, while the VIP needed a holder.
// Then all masters were up, no fault was active or recent, and the machine was not too
// busy.
func (w *flatWitness) unheld(t *Trace, silences []holders.Silence) (gaps []Span) {
	excuses := []Span{{0, t.Ready}}
	for _, i := range t.Incidents {
		excuses = append(excuses, Span{i.Began, later(i.Mended, unheldFor)})
	}
	due := without(Span{0, t.End}, excuses)
	for _, s := range silences {
		gaps = append(gaps, common(due, Span{s.From - w.offset, s.To - w.offset})...)
	}
	return slices.DeleteFunc(gaps, func(gap Span) bool { return w.starved(t, gap) })
}
