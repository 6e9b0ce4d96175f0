package probe

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

// maxOutages bounds Result.Outages: a target that flaps for hours must not fill the memory.
const maxOutages = 1000

// recorder sums up a run in bounded memory. It takes attempts in the order of their starts.
type recorder struct {
	Result // but for what result adds, and the outage that goes on

	keep      int // of Attempts
	latencies histogram
	tracker
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

// mantissa is the number of bits of a latency that a histogram tells apart:
// buckets are 1/32 of their value wide, their middles at most 1.6 % off.
const mantissa = 5

// histogram counts durations in buckets that grow with their value, so that
// quantiles of any number of attempts take the same small memory.
type histogram struct {
	min, max time.Duration
	total    int
	buckets  [(64 - mantissa + 1) << mantissa]int
}

func (h *histogram) add(d time.Duration) {
	if h.total == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.total++
	h.buckets[bucket(d)]++
}

// quantile returns the value below which the share q of all durations lies.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(q * float64(h.total))
	for i, n := range h.buckets {
		if rank -= n; rank < 0 {
			return min(max(middle(i), h.min), h.max)
		}
	}
	return h.max
}

// bucket is the index for d: durations below 1<<mantissa have their own, above
// that the leading bits count.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 1<<mantissa {
		return int(v)
	}
	shift := bits.Len64(v) - mantissa - 1
	return (shift+1)<<mantissa + int(v>>shift) - 1<<mantissa
}

// middle is the middle of bucket i.
func middle(i int) time.Duration {
	if i < 1<<mantissa {
		return time.Duration(i)
	}
	shift := i>>mantissa - 1
	low := (1<<mantissa + uint64(i)&(1<<mantissa-1)) << shift
	return time.Duration(low + 1<<shift/2)
}
