package probe

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// Outage is a period without a connection to the target.
type Outage struct {
	// Start is when the first failed attempt began, since Result.Began.
	Start time.Duration `json:"startNs"`
	// End is when the first attempt that succeeded again began; for an ongoing
	// outage, when its newest failed attempt began.
	End time.Duration `json:"endNs"`
	// Ongoing is set if the target had not come back: the outage lasts at least from Start to End.
	Ongoing bool `json:"ongoing,omitempty"`
	// Failures counts the failed attempts by outcome.
	Failures map[Outcome]int `json:"failures"`
}

// Duration is the time from Start to End.
func (o Outage) Duration() time.Duration { return o.End - o.Start }

// Failed is the number of failed attempts.
func (o Outage) Failed() int {
	n := 0
	for _, count := range o.Failures {
		n += count
	}
	return n
}

// String describes the outage in one line.
func (o Outage) String() string {
	length := round(o.Duration()).String()
	if o.Ongoing {
		length = "at least " + length
	}
	return fmt.Sprintf("at +%v for %s: %d failed (%s)", round(o.Start), length, o.Failed(), describe(o.Failures))
}

// clone returns a copy that shares nothing with o.
func (o Outage) clone() *Outage {
	o.Failures = maps.Clone(o.Failures)
	return &o
}

// tracker finds outages in a stream of attempts.
type tracker struct {
	open *Outage
}

// observe takes the next attempt and returns the outage that it began or
// ended, if any.
func (t *tracker) observe(a Attempt) *Outage {
	switch {
	case a.Outcome.Inconclusive(), a.Outcome == OK && t.open == nil:
		return nil
	case a.Outcome == OK:
		o := t.open
		t.open = nil
		// Two goroutines may start in the other order than they were launched.
		o.End = max(a.Start, o.End)
		o.Ongoing = false
		return o
	}
	began := t.open == nil
	if began {
		t.open = &Outage{Start: a.Start, End: a.Start, Ongoing: true, Failures: make(map[Outcome]int)}
	}
	t.open.End = max(a.Start, t.open.End)
	t.open.Failures[a.Outcome]++
	if !began {
		return nil
	}
	return t.open.clone()
}

// describe lists counts by outcome: "3 refused, 20 timeout".
func describe(counts map[Outcome]int) string {
	var parts []string
	for _, o := range outcomes() {
		if n := counts[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %v", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// round keeps about three significant digits, enough to read and to compare.
func round(d time.Duration) time.Duration {
	switch {
	case d < 10*time.Microsecond:
		return d
	case d < 10*time.Millisecond:
		return d.Round(time.Microsecond)
	case d < time.Second:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(time.Millisecond)
	}
}
