package health

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/seconds"
)

// overloadHold is how long a warning of overload stays after the last 429, so
// that a nearly overloaded server does not cause a log line for every probe.
const overloadHold = 10 * time.Second

// pauseInterval is how often a sleeping check looks for a suspension of this process.
const pauseInterval = 500 * time.Millisecond

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
	cancel context.CancelFunc
	done   chan struct{}

	// Used by run only:
	judge      judge
	quick      int // failures in a row that were not slow
	pauses     pauses
	overloaded time.Time // the last 429
	overload   string    // the reason of the first 429 in overloadHold

	mu      sync.Mutex
	verdict Verdict
}

// start runs a check at once, from the given verdict.
func start(c Check, p prober, v Verdict, log *slog.Logger, notify func(Verdict)) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{
		check: c, prober: p, log: log, notify: notify,
		cancel: cancel, done: make(chan struct{}),
		judge:   judge{rise: c.Rise, fall: c.Fall, state: v.State},
		pauses:  pauses{asleep: asleep, before: asleep()},
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
		if r.suspended(began.Add(r.check.Timeout)) {
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

// sleep waits until a time, the end of ctx or a wake-up, and reports whether it was woken. Every pauseInterval it
// checks whether this process was suspended, and returns early if it was.
func (r *runner) sleep(ctx context.Context, until time.Time, wake <-chan struct{}) (woken bool) {
	if now := time.Now(); until.Before(now) {
		until = now // a slow notify delayed this check, not a pause
	}
	for {
		step := until
		if next := time.Now().Add(pauseInterval); next.Before(until) {
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
		if r.suspended(step) || woken || step.Equal(until) {
			return woken
		}
	}
}

// suspended reports whether this process was suspended, given that it was due to run at
// due. If so, a healthy endpoint becomes unhealthy, because its verdict is stale, until it
// passes Rise times again. That does not count as a failure of the endpoint.
func (r *runner) suspended(due time.Time) bool {
	now := time.Now()
	pause := r.pauses.since(due, now)
	if pause == 0 {
		return false
	}
	healthy := r.judge.state == Healthy
	r.judge = r.judge.invalidate()
	if !healthy {
		return true
	}
	r.mu.Lock()
	v := &r.verdict
	v.Reason = fmt.Sprintf("this process did not run for %v: checking again", pause.Round(100*time.Millisecond))
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

// pauseSlack is how late a check must be before it concludes that this process was suspended. A signal may have stopped
// it, or its cgroup frozen it, or its machine was paused or asleep. pauseSlack is well above the delays of a busy
// scheduler, so that load withdraws no healthy endpoint. It is below the shortest BGP hold time (3 s), so that a pause
// is detected before a peer that dropped the session has a new one. A shorter pause only makes the verdict that much
// older than usual.
const pauseSlack = 2 * time.Second

// pauses detects that this process was suspended, which makes its verdicts stale.
type pauses struct {
	asleep func() time.Duration // how long the machine has been asleep since it booted
	before time.Duration        // asleep at the last call of since
}

// since returns how long this process was suspended, given that it was due to run at due; 0 if the delay is below
// pauseSlack. The monotonic clock of due does not count a machine's sleep, so since adds it. A pause is undetectable if
// the hypervisor also stops the clocks of its guest.
func (p *pauses) since(due, now time.Time) time.Duration {
	total := p.asleep()
	slept := total - p.before
	p.before = total
	if late := now.Sub(due) + slept; late >= pauseSlack {
		return late
	}
	return 0
}

// asleep returns how long the machine has been suspended since boot: CLOCK_BOOTTIME counts that time, CLOCK_MONOTONIC does not.
func asleep() time.Duration {
	var boot, running unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &running) != nil {
		return 0 // every Linux has these clocks
	}
	return time.Duration(boot.Nano() - running.Nano())
}
