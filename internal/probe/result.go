package probe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is the outcome of a run. It marshals to JSON, durations in nanoseconds.
type Result struct {
	// Target is Prober.Target.
	Target string `json:"target"`
	// Interval and Timeout are those in force.
	Interval time.Duration `json:"intervalNs"`
	Timeout  time.Duration `json:"timeoutNs"`
	// Began is the wall-clock time of the first tick; all else counts from it.
	Began time.Time `json:"began"`
	// Elapsed is how long the run lasted.
	Elapsed time.Duration `json:"elapsedNs"`

	// Total counts the attempts that came to their end.
	Total int `json:"total"`
	// Failed counts the attempts that speak against the target.
	Failed int `json:"failed"`
	// Outcomes counts all of them by outcome.
	Outcomes map[Outcome]int `json:"outcomes"`
	// Late counts the ticks at which no attempt was made because the prober
	// itself was behind. If it is more than a few, distrust the rest.
	Late int `json:"late"`
	// MaxDelay is the longest scheduling delay of an attempt.
	MaxDelay time.Duration `json:"maxDelayNs"`
	// Latency sums up the attempts that succeeded.
	Latency Latency `json:"latency"`
	// Servers counts the successful attempts by the server that answered them, if Identify was set.
	Servers map[string]int `json:"servers,omitempty"`

	// OutageCount is the number of outages, the ongoing one included.
	OutageCount int `json:"outageCount"`
	// Longest is the longest outage; nil if there was none.
	Longest *Outage `json:"longest,omitempty"`
	// Downtime is the sum of the durations of all outages.
	Downtime time.Duration `json:"downtimeNs"`
	// Outages are the newest outages, at most a thousand, oldest first.
	Outages []Outage `json:"outages"`
	// Attempts are the newest attempts, at most Prober.Keep, oldest first.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Latency sums up times to success. Min and Max are exact, the quantiles to
// within 2 %. All are zero if nothing succeeded.
type Latency struct {
	Min    time.Duration `json:"minNs"`
	Median time.Duration `json:"medianNs"`
	P99    time.Duration `json:"p99Ns"`
	Max    time.Duration `json:"maxNs"`
}

// WriteText writes the result for people: a few lines of summary and one line for each outage.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d attempts in %v, one every %v, timeout %v\n",
		r.Target, r.Total, round(r.Elapsed), r.Interval, r.Timeout)
	if r.Total > 0 {
		fmt.Fprintf(&b, "outcomes: %s\n", describe(r.Outcomes))
	}
	if r.Outcomes[OK] > 0 {
		fmt.Fprintf(&b, "latency:  min %v, median %v, p99 %v, max %v\n",
			round(r.Latency.Min), round(r.Latency.Median), round(r.Latency.P99), round(r.Latency.Max))
	}
	if r.Late > 0 || r.Outcomes[Stalled] > 0 || r.Outcomes[Local] > 0 {
		fmt.Fprintf(&b, "prober:   missed %d ticks and was up to %v behind: this machine was busy\n",
			r.Late, round(r.MaxDelay))
	}
	if len(r.Servers) > 0 {
		names := slices.Sorted(maps.Keys(r.Servers))
		for i, name := range names {
			names[i] = fmt.Sprintf("%s %d", cmp.Or(name, "unnamed"), r.Servers[name])
		}
		fmt.Fprintf(&b, "servers:  %s\n", strings.Join(names, ", "))
	}
	if r.OutageCount == 0 {
		fmt.Fprintln(&b, "outages:  none")
	} else {
		fmt.Fprintf(&b, "outages:  %d, longest %v, together %v\n",
			r.OutageCount, round(r.Longest.Duration()), round(r.Downtime))
	}
	if dropped := r.OutageCount - len(r.Outages); dropped > 0 {
		fmt.Fprintf(&b, "  (%d older ones not listed)\n", dropped)
	}
	for _, o := range r.Outages {
		fmt.Fprintf(&b, "  %v\n", o)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
