package health

import (
	"fmt"
	"time"
)

// kind is what one probe says about the endpoint.
type kind int

const (
	passed     kind = iota
	overloaded      // it answered, but only to say that it is busy
	failed          // it gave no answer in time, or none that can be understood or trusted
	negative        // it gave an answer, which is not the wanted one
	cut             // it accepted the connection, then ended it without a full answer
	refused         // nobody listens
)

// outcome is the result of one probe.
type outcome struct {
	kind    kind
	reason  string // for people; never empty
	warning string // empty if there is none
	own     bool   // the fault is the check's, and says nothing about the server
	slow    bool   // the server may be alive, and have too much to do
}

// judge counts outcomes. It is a value: observe returns its successor, so that
// a decision depends on nothing but what went in.
type judge struct {
	rise, fall int
	state      State
	passes     int       // in a row
	failures   int       // in a row
	began      time.Time // when the present run of passes or failures began
}

// observe adds one outcome whose first evidence was seen at the given time, and
// reports whether the state changed. The change's cause is the successor's began.
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
		// Overload is a sign of life: it ends a run of failures. It is no
		// reason to announce either, so it does not count as a pass.
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

// doubt forgets the runs so far, and that the endpoint was healthy.
func (j judge) doubt() judge {
	j.passes, j.failures = 0, 0
	if j.state == Healthy {
		j.state = Unhealthy
	}
	return j
}

// reason says why the state is what it is after the outcome; before is the reason until then.
func (j judge) reason(out outcome, before string) string {
	switch {
	case j.failures > 0 && j.state != Unhealthy:
		return fmt.Sprintf("failed %d of %d: %s", j.failures, j.fall, out.reason)
	case out.kind == passed && j.state == Unknown:
		return fmt.Sprintf("passed %d of %d: %s", j.passes, j.rise, out.reason)
	case out.kind == passed && j.state == Unhealthy:
		return before // what ails it is still the last failure
	default:
		return out.reason
	}
}

// hunt paces the probes that follow a cut connection of a healthy endpoint.
//
// A dying process closes its sockets one by one. A probe on the heels of the
// first close may still find the listener and be cut off too, so a few more
// follow, within some 30 ms, to meet the refusal. A server that cuts every
// connection and lives on uses up the hunt; from then on it is only polled,
// until a connection has lasted from one scheduled probe to the next.
type hunt struct{ probes int }

const maxHunt = 6

// step returns how long to wait before the next probe of the hunt; ok is false
// if the hunt is over.
func (h *hunt) step() (pause time.Duration, ok bool) {
	if h.probes == maxHunt {
		return 0, false
	}
	if h.probes > 0 {
		pause = time.Millisecond << (h.probes - 1)
	}
	h.probes++
	return pause, true
}
