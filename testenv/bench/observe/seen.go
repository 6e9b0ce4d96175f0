package observe

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/bench/record"
	"github.com/herald-vip/herald/testenv/holders"
)

// Seen holds the observations of a trial by clients and, on a flat layer 2, by an observer.
type Seen struct {
	// Attempts and Failed count the clients' connections, without Starved.
	Attempts, Failed int
	// Starved counts the attempts that prove nothing, because the prober itself did not
	// run; Late is the longest delay of its schedule.
	Starved int
	Late    time.Duration
	// Outage is the time from the first failed connection to the first good one after the
	// last failed one, the longest if several, 0 if none. Open reports that it had not
	// ended when the trial did.
	Outage time.Duration
	Open   bool
	// Taken is the time from the fault until another node had claimed the VIP on the
	// wire; nil if none had in time.
	Taken *time.Duration
	// After is the outage after the end of an unplanned fault; nil if it was not measured.
	After *time.Duration
	// Holders is how many nodes had the VIP at the same time, Split for how long.
	Holders int
	Split   time.Duration
}

// Values returns the clients' observations for a record.
func (s Seen) Values() []record.Value {
	outage := &s.Outage
	if s.Open {
		outage = nil
	}
	list := []record.Value{{Value: float64(s.Attempts), Unit: "connections"}, {Value: float64(s.Failed), Unit: "failed"}, Milliseconds("outage", outage)}
	if s.Starved > 0 {
		list = append(list, record.Value{Value: float64(s.Starved), Unit: "starved"})
	}
	return append(list, Milliseconds("late", &s.Late))
}

// SeenOnLink returns the observer's values, and the clients' outage after the fault.
func (s Seen) SeenOnLink() []record.Value {
	list := []record.Value{Milliseconds("taken", s.Taken)}
	if s.After != nil {
		list = append(list, Milliseconds("after", s.After))
	}
	return append(list, record.Value{Value: float64(s.Holders), Unit: "holders"}, Milliseconds("split", &s.Split))
}

// Milliseconds returns a duration for a record; nil means that it never ended.
func Milliseconds(name string, d *time.Duration) record.Value {
	if d == nil {
		return record.Never("ms/" + name)
	}
	return record.Value{Value: float64(*d) / float64(time.Millisecond), Unit: "ms/" + name}
}

// TakenOver returns the time from since until other nodes than the holder had claimed
// all these addresses, by an answer or an announcement.
func TakenOver(t *holders.Trace, vips []netip.Addr, holder string, since time.Duration) (time.Duration, bool) {
	first := make(map[netip.Addr]time.Duration)
	for _, s := range t.Observations {
		if _, ok := first[s.VIP]; !ok && s.At >= since && s.Act != holders.Accepts && s.Master != holder && slices.Contains(vips, s.VIP) {
			first[s.VIP] = s.At
		}
	}
	var last time.Duration
	for _, at := range first {
		last = max(last, at-since)
	}
	return last, len(first) == len(vips)
}

// AddHolders records for how long since an instant more than one node claimed the VIP on the wire.
func (s *Seen) AddHolders(trace *holders.Trace, since time.Duration) {
	s.Holders = 1
	until := make(map[netip.Addr]time.Duration) // end of the time counted already; spans are in order of their beginnings
	split := make(map[netip.Addr]time.Duration)
	for _, v := range holders.Judge(trace, holders.DefaultLimits()) {
		if v.From < since || v.Rule != holders.TwoHolders {
			continue
		}
		s.Holders = 2
		split[v.VIP] += max(0, v.To-max(v.From, until[v.VIP]))
		until[v.VIP] = max(until[v.VIP], v.To)
		s.Split = max(s.Split, split[v.VIP])
	}
}

// AddClients adds the clients' observations. healed is when an unplanned fault ended:
// later outages are counted separately. It is zero for a planned change.
func (s *Seen) AddClients(results []*probe.Result, healed time.Time) {
	var after time.Duration
	for _, r := range results {
		s.Late = max(s.Late, r.MaxDelay)
		before := r.Attempts
		if !healed.IsZero() {
			end, _ := slices.BinarySearchFunc(r.Attempts, healed.Sub(r.Began), func(a probe.Attempt, at time.Duration) int { return cmp.Compare(a.Start, at) })
			before = r.Attempts[:end]
			late, _ := Outage(r.Attempts[end:])
			after = max(after, late)
		}
		for _, a := range before {
			switch {
			case a.Outcome.Inconclusive():
				s.Starved++
				continue
			case a.Outcome.Failed():
				s.Failed++
			}
			s.Attempts++
		}
		d, open := Outage(before)
		s.Outage, s.Open = max(s.Outage, d), s.Open || open
	}
	if !healed.IsZero() {
		s.After = &after
	}
}
