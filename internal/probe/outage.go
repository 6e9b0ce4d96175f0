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
