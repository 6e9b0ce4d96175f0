package health

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/seconds"
)

// overloadHold is how long a warning of overload stays after the last 429, so
// that a nearly overloaded server does not cause a log line for every probe.
const overloadHold = 10 * time.Second

// prober probes the endpoint. One goroutine uses it.
type prober interface {
	// probe makes one probe and returns at the end of ctx at the latest.
	probe(ctx context.Context) outcome
	// monitored returns the connection that the last probe left open and monitored, or nil.
	monitored() *wire
	close()
}

// named begins the reasons of a prober with its subject.
type named struct {
	prober
	subject string
}

func (p named) probe(ctx context.Context) outcome {
	out := p.prober.probe(ctx)
	out.reason = p.subject + ": " + out.reason
	return out
}

// runner runs one check.
type runner struct {
	check  Check
	prober prober
	log    *slog.Logger
	notify func(Verdict)
	pauses *pauses
	cancel context.CancelFunc
	done   chan struct{}

	// Used by run only:
	judge      judge
	quick      int             // failures in a row that were not slow
	running    context.Context // ends when this process was suspended
	overloaded time.Time       // the last 429
	overload   string          // the reason of the first 429 in overloadHold

	mu      sync.Mutex
	verdict Verdict
}

// start runs a check at once, from the given verdict.
func start(c Check, p prober, v Verdict, m *Monitor) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{
		check: c, prober: p, log: m.log, notify: m.notify,
		pauses: m.pauses, running: m.pauses.look(),
		cancel: cancel, done: make(chan struct{}),
		judge:   judge{rise: c.Rise, fall: c.Fall, state: v.State},
		verdict: v,
	}
	go func() {
		defer close(r.done)
		defer p.close()
		r.run(ctx)
	}()
	return r
}

// stop ends the check and waits for it; a probe under way has no effect.
func (r *runner) stop() {
	r.cancel()
	<-r.done
}

func (r *runner) run(ctx context.Context) {
	var (
		reprobe  fastReprobe
		evidence time.Time // of the close that triggered this probe; zero if it was scheduled
	)
	for {
		began := time.Now()
		out := r.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.suspended() {
			evidence = time.Time{}
			continue // the result is as old as the pause
		}
		if evidence.IsZero() {
			evidence = began
		}
		next := began.Add(r.check.Interval)

		// A healthy endpoint that cuts a probe off may be dying: probe again fast, until it refuses, before judging.
		if out.kind == cut && r.judge.state == Healthy {
			if pause, ok := reprobe.step(); ok {
				r.sleep(ctx, time.Now().Add(pause), nil)
				continue
			}
		}
		r.observe(out, began, evidence)

		evidence = r.rest(ctx, next)
		if evidence.IsZero() {
			if out.kind != cut {
				reprobe.probes = 0
			}
			continue
		}
		if pause, ok := reprobe.step(); ok {
			next = time.Now().Add(pause)
		}
		r.sleep(ctx, next, nil)
	}
}

func (r *runner) probe(ctx context.Context) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.check.Timeout)
	defer cancel()
	defer context.AfterFunc(r.running, cancel)()
	return r.prober.probe(ctx)
}

// rest waits for the next scheduled probe. If a healthy endpoint closes the
// monitored connection before, rest returns at once, with the time of the close.
func (r *runner) rest(ctx context.Context, next time.Time) (closed time.Time) {
	var ended <-chan struct{}
	w := r.prober.monitored()
	if w != nil && r.judge.state == Healthy {
		ended = w.ended
	}
	if r.sleep(ctx, next, ended) {
		closed = w.at
	}
	return closed
}

// sleep waits until a time, the end of ctx, a wake-up or the end of a suspension of this process, and reports whether
// it was woken.
func (r *runner) sleep(ctx context.Context, until time.Time, wake <-chan struct{}) (woken bool) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-wake:
		woken = true
	case <-timer.C:
	case <-r.running.Done():
	case <-ctx.Done():
		return false
	}
	r.suspended()
	return woken
}

// suspended reports whether this process was suspended since the last call. If so, a healthy endpoint becomes
// unhealthy, because its verdict is stale, until it passes Rise times again. That does not count as a failure of the
// endpoint.
func (r *runner) suspended() bool {
	before := r.running
	r.running = r.pauses.look()
	if before.Err() == nil {
		return false
	}
	now := time.Now()
	healthy := r.judge.state == Healthy
	r.judge = r.judge.invalidate()
	if !healthy {
		return true
	}
	r.mu.Lock()
	v := &r.verdict
	v.Reason = context.Cause(before).Error()
	v.State, v.Paused, v.Slow = r.judge.state, true, false
	v.Since, v.Cause = now, now
	verdict := *v
	r.mu.Unlock()
	r.notify(verdict)
	r.log.Warn("check is unhealthy", "check", verdict.Name, "reason", verdict.Reason, "state", verdict.State.String())
	return true
}

// observe applies an outcome, then notifies and logs the changes.
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
	v.Latency = seconds.Duration(now.Sub(began))
	switch out.kind {
	case passed:
		v.Passes++
	case overloaded:
	default:
		v.Failures++
	}
	if out.kind != passed {
		v.Paused = false // the endpoint itself fails now
	}
	if changed {
		v.Since, v.Cause, v.Paused = now, next.began, false
	}
	verdict := *v
	r.mu.Unlock()

	// Notify first: a log may be slow, or stuck.
	if changed || verdict.Warning != before || next.state == Unhealthy && (verdict.Reason != why || verdict.Slow != slow) {
		r.notify(verdict)
	}
	if changed {
		level := slog.LevelInfo
		if next.state == Unhealthy {
			level = slog.LevelWarn
		}
		r.log.Log(context.Background(), level, "check is "+next.state.String(),
			"check", verdict.Name, "reason", verdict.Reason, "after", now.Sub(verdict.Cause), "state", next.state.String())
	}
	switch {
	case verdict.Warning == before:
	case verdict.Warning == "":
		r.log.Info("check warning cleared", "check", verdict.Name, "warning", before)
	default:
		r.log.Warn("check warning raised", "check", verdict.Name, "warning", verdict.Warning)
	}
}

// warning joins the outcome's warning and the warning of a recent overload.
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

// current returns the current verdict.
func (r *runner) current() Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.verdict
}

// inverted probes for a check with not: true. It exposes no connection to monitor: the end of an
// unwanted server is no bad news.
type inverted struct{ prober }

func (p inverted) probe(ctx context.Context) outcome { return p.prober.probe(ctx).invert() }

func (inverted) monitored() *wire { return nil }

// invert returns the outcome for a check with not: true. It inverts only proof: any answer, and a refused connection. A
// timeout, a cut connection and a fault of this node prove nothing and fail either way, so that they never cause an
// announcement. Overload is not inverted. The result is never slow, as a timeout is no sign of the wanted state.
func (o outcome) invert() outcome {
	o.slow = false
	switch o.kind {
	case passed:
		o.kind, o.reason = failed, "not wanted: "+o.reason
	case negative, refused:
		o.kind, o.reason = passed, "as wanted: "+o.reason
	}
	return o
}
