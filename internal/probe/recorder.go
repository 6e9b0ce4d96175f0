package probe

import (
	"maps"
	"math"
	"slices"
	"time"
)

// maxOutages bounds Result.Outages: a target that flaps for hours must not fill the memory.
const maxOutages = 1000

// recorder sums up a run in bounded memory. It takes attempts in the order of their starts.
type recorder struct {
	Result // without the figures that result adds, and the ongoing outage

	keep      int // of Attempts
	latencies histogram
	open      *Outage // nil unless there is one
}

func (r *recorder) account(a Attempt) Event {
	r.Total++
	r.Outcomes[a.Outcome]++
	if a.Outcome.Failed() {
		r.Failed++
	}
	r.MaxDelay = max(r.MaxDelay, a.Delay)
	r.Attempts = newest(r.Attempts, a, r.keep)
	if a.Outcome == OK {
		r.latencies.add(a.Latency)
		// Names come from the network: a liar must not fill the memory.
		if _, known := r.Servers[a.Server]; known || len(r.Servers) < maxServers {
			r.Servers[a.Server]++
		}
	}
	outage := r.observe(a)
	if outage != nil && !outage.Ongoing {
		r.end(*outage)
		r.Outages = newest(r.Outages, *outage, maxOutages)
	}
	return Event{Attempt: a, Outage: outage}
}

// observe takes the next attempt and returns the outage that it began or ended, if any.
func (r *recorder) observe(a Attempt) *Outage {
	switch {
	case a.Outcome.Inconclusive(), a.Outcome == OK && r.open == nil:
		return nil
	case a.Outcome == OK:
		o := r.open
		r.open = nil
		// Two goroutines may start in the other order than they were launched.
		o.End = max(a.Start, o.End)
		o.Ongoing = false
		return o
	}
	began := r.open == nil
	if began {
		r.open = &Outage{Start: a.Start, End: a.Start, Ongoing: true, Failures: make(map[Outcome]int)}
	}
	r.open.End = max(a.Start, r.open.End)
	r.open.Failures[a.Outcome]++
	if !began {
		return nil
	}
	return r.open.clone()
}

// maxServers bounds Result.Servers.
const maxServers = 1000

// result copies the figures out.
func (r *recorder) result(withAttempts bool) *Result {
	res := r.Result
	res.Outcomes, res.Servers = maps.Clone(r.Outcomes), nil
	if len(r.Servers) > 1 || r.Servers[""] < r.Outcomes[OK] {
		res.Servers = maps.Clone(r.Servers)
	}
	l := &r.latencies
	res.Latency = Latency{Min: l.min, Median: l.quantile(0.5), P99: l.quantile(0.99), Max: l.max}
	res.Outages = slices.Clone(r.Outages)
	if r.open != nil {
		o := *r.open.clone()
		res.end(o)
		res.Outages = append(res.Outages, o)
	}
	if !withAttempts {
		res.Attempts = nil
	}
	return &res
}

// end counts an outage.
func (r *Result) end(o Outage) {
	r.OutageCount++
	r.Downtime += o.Duration()
	if r.Longest == nil || o.Duration() > r.Longest.Duration() {
		r.Longest = &o
	}
}

// newest is values and v, without the oldest beyond the limit.
func newest[T any](values []T, v T, limit int) []T {
	values = append(values, v)
	return values[max(len(values)-limit, 0):]
}

// growth is by how much each bucket of a histogram is wider than the one below: its middle is at most 1 % off.
const growth = 1.02

// histogram counts durations in buckets that grow with their value, so that
// quantiles of any number of attempts take the same small memory.
type histogram struct {
	min, max time.Duration
	total    int
	buckets  map[int]int // how many were between growth to the power of the key and of the next
}

func (h *histogram) add(d time.Duration) {
	if h.total == 0 {
		h.min, h.buckets = d, make(map[int]int)
	}
	h.min, h.max = min(h.min, d), max(h.max, d)
	h.total++
	h.buckets[int(math.Log(float64(max(d, 1)))/math.Log(growth))]++
}

// quantile returns the value below which the share q of all durations lies.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(q * float64(h.total))
	for _, i := range slices.Sorted(maps.Keys(h.buckets)) {
		if rank -= h.buckets[i]; rank < 0 {
			middle := time.Duration(math.Round(math.Pow(growth, float64(i)+0.5)))
			return min(max(middle, h.min), h.max)
		}
	}
	return h.max
}
