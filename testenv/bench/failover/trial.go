package failover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/holders"
	"github.com/herald-vip/herald/testenv/step"
)

// trial is one fault as seen by one router and the client behind it, or, on a flat
// layer 2, by an observer and a client per family.
type trial struct {
	router string
	// told is the time from the fault to the router's first BGP message about it, and
	// word the kind of that message; nil if there was none.
	told *time.Duration
	word observe.Word
	// gone is the time from the fault until the router's kernel had no route to the
	// master; nil if it still had one at the limit.
	gone *time.Duration
	// back is the time from the end of the fault until the route, and BFD if enabled, was
	// back; nil if it was not measured.
	back *time.Duration
	observe.Seen
}

// layer2 is the router name for a flat layer 2.
const layer2 = "layer 2"

// result returns the name of trials in a record.
func (f fault) result(speaker, router string) string {
	benchmark := "Fault"
	if f.planned {
		benchmark = "PlannedChange"
	}
	return record.Name(benchmark, "fault", f.name, "speaker", speaker, "router", router)
}

// values returns the trial's values for the record.
func (t trial) values() []record.Value {
	list := t.Seen.Values()
	if t.router == layer2 {
		return append(list, t.SeenOnLink()...)
	}
	if t.told != nil {
		list = append(list, observe.Milliseconds("told", t.told))
	}
	list = append(list, observe.Milliseconds("gone", t.gone))
	if floor, ok := t.floor(); ok {
		list = append(list, observe.Milliseconds("floor", &floor))
	}
	if t.back != nil {
		list = append(list, observe.Milliseconds("back", t.back))
	}
	return list
}

// floor returns the router's own time, from the withdrawal's arrival to the change of
// its kernel route. It is known only if the router's first message was a plain
// withdrawal.
func (t trial) floor() (time.Duration, bool) {
	if t.told == nil || t.gone == nil || t.word != observe.Withdrawal || *t.gone < *t.told {
		return 0, false
	}
	return *t.gone - *t.told, true
}

// watch holds the clients of a network, and the observer on a flat layer 2.
type watch struct {
	clients []*observe.Traffic
	results []*probe.Result // of the clients that have ended
	seen    *holders.Observer
	began   time.Duration // when the fault was made, by the observer's clock
	healed  time.Time     // when an unplanned fault was undone
}

// quit ends the clients.
func (w *watch) quit() {
	for _, c := range w.clients[len(w.results):] {
		w.results = append(w.results, c.End())
	}
}

// end ends the watch.
func (w *watch) end() error {
	err := step.Run(w.quit)
	if w.seen != nil {
		err = errors.Join(err, w.seen.Close())
	}
	return err
}

// try makes a fault and returns the observations: a trial for each router. The state
// is normal before and after. The number is the trial's.
func (s *site) try(ctx context.Context, f fault, number, connections int) (trials []trial) {
	var w *watch
	observe.Undisturbed(func() {
		w = s.watch(ctx, f.identify)
		defer step.Close(w.end)
		trials = s.measure(ctx, f, number, connections, w)
	})
	s.judge(w, trials)
	return trials
}

// measure makes the fault, undoes it, and returns when the state is as before.
func (s *site) measure(ctx context.Context, f fault, number, connections int, w *watch) []trial {
	step.Pause(ctx, observe.LeadIn+rand.N(s.speaker.interval+1))
	master := s.victim(w, number)
	if failed := observe.Failed(w.clients); master == "" || failed > 0 {
		s.rest(ctx, w)
		step.Do(fmt.Errorf("%w: %d connections failed before the fault, the VIP on %q", observe.ErrDisturbed, failed, master))
	}
	deadline := time.Now().Add(f.limit)
	trials := s.effects(ctx, w, f, master, deadline)
	if !f.planned {
		observe.AwaitQuiet(ctx, deadline, w.clients...)
		w.healed = time.Now()
		if w.seen == nil { // the recovery matters to clients only on a flat layer 2
			w.quit()
		}
	}
	step.Named("after the fault", func() {
		if f.heal != nil {
			s.heal(ctx, func() error { return f.heal(ctx, s, master) }, master, trials)
		}
		s.rest(ctx, w)
	})
	if f.planned {
		observe.AwaitConnections(ctx, connections, w.clients...)
		observe.AwaitQuiet(ctx, time.Now().Add(f.limit), w.clients...)
	}
	return trials
}
