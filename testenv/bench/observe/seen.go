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

// Seen is what clients, and an observer on a flat layer 2, saw of a trial.
type Seen struct {
	// Attempts and Failed count the clients' connections, those of Starved left out.
	Attempts, Failed int
	// Starved counts the attempts that say nothing, since the prober itself did not get
	// to run; Late is the longest delay of its schedule.
	Starved int
	Late    time.Duration
	// Outage is the time from the first failed connection to the first good one
	// after the last failed one, 0 if none failed; the longest of several. Open says that it
	// went on when the trial was over.
	Outage time.Duration
	Open   bool
	// Taken is the time from the fault until another node had claimed the VIP on the wire;
	// nil if none had in time.
	Taken *time.Duration
	// After is the outage after the end of an unplanned fault; nil if it was not measured.
	After *time.Duration
	// Holders is how many nodes had the VIP at the same time, Split for how long.
	Holders int
	Split   time.Duration
}

// Values are what clients saw, for a record.
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

// SeenOnLink are what an observer on the link saw besides, and what clients did afterwards.
func (s Seen) SeenOnLink() []record.Value {
	list := []record.Value{Milliseconds("taken", s.Taken)}
	if s.After != nil {
		list = append(list, Milliseconds("after", s.After))
	}
	return append(list, record.Value{Value: float64(s.Holders), Unit: "holders"}, Milliseconds("split", &s.Split))
}

// Milliseconds is a duration for a record; nil is one that never ended.
func Milliseconds(name string, d *time.Duration) record.Value {
	if d == nil {
		return record.Never("ms/" + name)
	}
	return record.Value{Value: float64(*d) / float64(time.Millisecond), Unit: "ms/" + name}
}

// TakenOver is the time from since until others than the holder had claimed all these
// addresses, by an answer or an announcement.
func TakenOver(t *holders.Trace, vips []netip.Addr, holder string, since time.Duration) (time.Duration, bool) {
	first := make(map[netip.Addr]time.Duration)
	for _, s := range t.Sightings {
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

// AddHolders notes for how long since an instant more than one node claimed the
// VIP, on the wire.
func (s *Seen) AddHolders(trace *holders.Trace, since time.Duration) {
	s.Holders = 1
	until := make(map[netip.Addr]time.Duration) // of what is counted already: they come by their beginnings
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

// AddClients adds what clients saw. Of an unplanned fault, healed is when it ended: what they
// saw after that is told apart. A planned one has none.
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
