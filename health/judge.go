package health

import (
	"fmt"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// kind classifies the result of one probe.
type kind int

const (
	passed     kind = iota
	overloaded      // answered that it is busy.
	failed          // no answer in time, or an invalid or untrusted one.
	negative        // a wrong answer.
	cut             // accepted the connection, then ended it without a full answer.
	refused         // proof at once: no process listens, or the link is not up.
)

// outcome is the result of one probe.
type outcome struct {
	kind    kind
	reason  string // for people; never empty
	warning string // empty if there is none
	own     bool   // the fault is the check's own and proves nothing about the server
	slow    bool   // the server may be alive and overloaded
}

// judge counts outcomes. It is an immutable value: observe returns its successor.
type judge struct {
	rise, fall int
	state      State
	passes     int       // in a row
	failures   int       // in a row
	began      time.Time // start of the current run of passes or failures
}

// observe adds one outcome, with the time of its first evidence, and
// reports whether the state changed. If it did, next.began is when its cause appeared.
func (j judge) observe(k kind, at time.Time) (next judge, changed bool) {
	switch k {
	case passed:
		if j.passes == 0 {
			j.began = at
		}
		j.passes, j.failures = j.passes+1, 0
		if j.state != Healthy && j.passes >= j.rise {
			j.state, changed = Healthy, true
		}
	case overloaded:
		// Overload is a sign of life, so it ends a run of failures. It is no
		// reason to announce, so it does not count as a pass.
		j.failures = 0
	default:
		if j.failures == 0 {
			j.began = at
		}
		j.passes, j.failures = 0, j.failures+1
		if j.state != Unhealthy && (k == refused || j.failures >= j.fall) {
			j.state, changed = Unhealthy, true
		}
	}
	return j, changed
}

// invalidate ends all runs and makes a healthy endpoint unhealthy.
func (j judge) invalidate() judge {
	j.passes, j.failures = 0, 0
	if j.state == Healthy {
		j.state = Unhealthy
	}
	return j
}

// reason returns why the endpoint is in its state after the outcome; before is the previous reason.
func (j judge) reason(out outcome, before string) string {
	switch {
	case j.failures > 0 && j.state != Unhealthy:
		return fmt.Sprintf("failed %d of %d: %s", j.failures, j.fall, out.reason)
	case out.kind == passed && j.state == Unknown:
		return fmt.Sprintf("passed %d of %d: %s", j.passes, j.rise, out.reason)
	case out.kind == passed && j.state == Unhealthy:
		return before // the last failure still explains the state
	default:
		return out.reason
	}
}

// fastReprobe paces the probes that follow a cut connection of a healthy endpoint.
//
// A dying process closes its sockets one by one. A probe right after the first close may still reach the listener and
// be cut off too. So a few more probes follow, within about 30 ms, until the connection is refused. A live server that
// cuts every connection uses up all of them. From then on it is only polled, until a connection has lasted from one
// scheduled probe to the next.
type fastReprobe struct{ probes int }

const maxReprobes = 6

var reprobePauses = wake.Backoff{Min: time.Millisecond, Max: 16 * time.Millisecond}

// step returns how long to wait before the next fast probe; ok is false if all are used up.
func (f *fastReprobe) step() (pause time.Duration, ok bool) {
	if f.probes == maxReprobes {
		return 0, false
	}
	pause = reprobePauses.After(f.probes)
	f.probes++
	return pause, true
}
