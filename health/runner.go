package health

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// overloadHold is how long a warning of overload stays after the last 429, so
// that a server on the brink does not make a log line of every probe.
const overloadHold = 10 * time.Second

// lookUp is how often a sleeping check sees whether this process stood still.
const lookUp = 500 * time.Millisecond

// prober asks the endpoint. It is used by one goroutine.
type prober interface {
	// probe asks once, until ctx ends at the latest.
	probe(ctx context.Context) outcome
	// tripwire is the watched connection the last probe left, or nil.
	tripwire() *wire
	close()
}

// runner keeps one check going.
type runner struct {
	check  Check
	prober prober
	log    *slog.Logger
	notify func(Verdict)
	cancel context.CancelFunc
	done   chan struct{}

	// Of run alone:
	judge      judge
	quick      int // failures in a row that were not slow
	pauses     pauses
	overloaded time.Time // the last 429
	overload   string    // what it said, at the start of the hold

	mu      sync.Mutex
	verdict Verdict
}

// start begins to probe at once, from the given verdict.
func start(c Check, p prober, v Verdict, log *slog.Logger, notify func(Verdict)) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{
		check: c, prober: p, log: log, notify: notify,
		cancel: cancel, done: make(chan struct{}),
		judge:   judge{rise: c.Rise, fall: c.Fall, state: v.State},
		pauses:  newPauses(),
		verdict: v,
	}
	go func() {
		defer close(r.done)
		defer p.close()
		r.run(ctx)
	}()
	return r
}

// stop ends the probing; a probe under way is not judged.
func (r *runner) stop() {
	r.cancel()
	<-r.done
}

func (r *runner) run(ctx context.Context) {
	var (
		hunt     hunt
		evidence time.Time // of what called for this probe; zero if the schedule did
	)
	for {
		began := time.Now()
		out := r.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.stoodStill(began.Add(r.check.Timeout)) {
			evidence = time.Time{}
			continue // what the probe saw is as old as the pause
		}
		if evidence.IsZero() {
			evidence = began
		}
		next := began.Add(r.check.Interval)

		// A healthy endpoint that cuts a probe off may be dying: hunt for the
		// refusal before judging.
		if out.kind == cut && r.judge.state == Healthy {
			if pause, ok := hunt.step(); ok {
				r.sleep(ctx, time.Now().Add(pause), nil)
				continue
			}
		}
		r.observe(out, began, evidence)

		tripped := r.rest(ctx, next)
		evidence = tripped
		if tripped.IsZero() {
			if out.kind != cut {
				hunt.probes = 0
			}
			continue
		}
		if pause, ok := hunt.step(); ok {
			next = time.Now().Add(pause)
		}
		r.sleep(ctx, next, nil)
	}
}

func (r *runner) probe(ctx context.Context) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.check.Timeout)
	defer cancel()
	return r.prober.probe(ctx)
}

// rest waits for the next scheduled probe. If a healthy endpoint ends the
// connection before, rest returns at once, with the time that happened.
func (r *runner) rest(ctx context.Context, next time.Time) (tripped time.Time) {
	var ended <-chan struct{}
	w := r.prober.tripwire()
	if w != nil && r.judge.state == Healthy {
		ended = w.ended
	}
	if r.sleep(ctx, next, ended) {
		tripped = w.at
	}
	return tripped
}

// sleep waits until a time, the end of ctx or the wake-up, and reports whether
// it was woken. It looks up often enough to notice a pause of this process long
// before a long sleep is over, and ends when it does.
func (r *runner) sleep(ctx context.Context, until time.Time, wake <-chan struct{}) (woken bool) {
	if now := time.Now(); until.Before(now) {
		until = now // what kept this check so long, notify perhaps, was no pause
	}
	for {
		step := until
		if next := time.Now().Add(lookUp); next.Before(until) {
			step = next
		}
		timer := time.NewTimer(time.Until(step))
		select {
		case <-wake:
			woken = true
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
		if r.stoodStill(step) || woken || step.Equal(until) {
			return woken
		}
	}
}

// stoodStill reports whether this process stood still when it should have been
// here at due. A healthy endpoint is not taken for healthy any more then: much
// may have happened meanwhile, and it must not be announced on the strength of
// that. It has to pass Rise times again, without a failure's being blamed on it.
func (r *runner) stoodStill(due time.Time) bool {
	now := time.Now()
	pause := r.pauses.since(due, now)
	if pause == 0 {
		return false
	}
	healthy := r.judge.state == Healthy
	r.judge = r.judge.doubt()
	if !healthy {
		return true
	}
	r.mu.Lock()
	v := &r.verdict
	v.State, v.Reason, v.Paused, v.Slow = r.judge.state, pauseReason(pause), true, false
	v.Since, v.Cause = now, now
	verdict := *v
	r.mu.Unlock()
	r.notify(verdict)
	r.log.Warn("check is unhealthy", "check", verdict.Check, "reason", verdict.Reason, "state", verdict.State.String())
	return true
}

// observe judges an outcome and makes known what it changed.
func (r *runner) observe(out outcome, began, evidence time.Time) {
	now := time.Now()
	next, changed := r.judge.observe(out.kind, evidence)
	r.judge = next
	if r.quick++; out.slow || out.kind == passed {
		r.quick = 0
	}
	warning := r.warning(out, now)

	r.mu.Lock()
	v := &r.verdict
	before, why, slow := v.Warning, v.Reason, v.Slow
	v.State = next.state
	v.Reason = next.reason(out, v.Reason)
	v.OwnFault = out.own
	v.Slow = next.state == Unhealthy && (out.slow || slow && (out.kind == passed || out.kind != refused && r.quick < next.fall))
	v.Warning = warning
	v.Latency = now.Sub(began)
	switch out.kind {
	case passed:
		v.Passes++
	case overloaded:
	default:
		v.Failures++
	}
	if out.kind != passed {
		v.Paused = false // it fails by itself now
	}
	if changed {
		v.Since, v.Cause, v.Paused = now, next.began, false
	}
	verdict := *v
	r.mu.Unlock()

	// What depends on the verdict comes first: a log may be slow, or stuck.
	if changed || verdict.Warning != before || next.state == Unhealthy && (verdict.Reason != why || verdict.Slow != slow) {
		r.notify(verdict)
	}
	if changed {
		level := slog.LevelInfo
		if next.state == Unhealthy {
			level = slog.LevelWarn
		}
		r.log.Log(context.Background(), level, "check is "+next.state.String(),
			"check", verdict.Check, "reason", verdict.Reason, "after", now.Sub(verdict.Cause), "state", next.state.String())
	}
	switch {
	case verdict.Warning == before:
	case verdict.Warning == "":
		r.log.Info("check's warning is over", "check", verdict.Check, "warning", before)
	default:
		r.log.Warn("check warns", "check", verdict.Check, "warning", verdict.Warning)
	}
}

// warning is the outcome's own and that of a recent overload.
func (r *runner) warning(out outcome, now time.Time) string {
	if r.overload != "" && now.Sub(r.overloaded) >= overloadHold {
		r.overload = ""
	}
	if out.kind == overloaded {
		r.overloaded = now
		if r.overload == "" {
			r.overload = "overloaded: " + out.reason
		}
	}
	if out.warning == "" || r.overload == "" {
		return r.overload + out.warning
	}
	return r.overload + "; " + out.warning
}

// current is the verdict of this moment.
func (r *runner) current() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict
}
