package bench

import (
	"cmp"
	"slices"
	"time"
)

// Sample is a set of durations, some of which never came to their end.
type Sample struct {
	// Values are sorted.
	Values []time.Duration
	// Never counts those that took longer than anyone waited. They are greater
	// than all Values.
	Never int
}

// newSample takes durations in any order; nil is one that never ended.
func newSample(list []*time.Duration) Sample {
	var s Sample
	for _, d := range list {
		if d == nil {
			s.Never++
		} else {
			s.Values = append(s.Values, *d)
		}
	}
	slices.Sort(s.Values)
	return s
}

// Len is the number of durations, endless ones included.
func (s Sample) Len() int { return len(s.Values) + s.Never }

// Min is the shortest duration, Median the middle one (the mean of two), Max
// the longest. They report false if there is none or if it never ended.
func (s Sample) Min() (time.Duration, bool) { return s.at(0) }

// Max is described at Min.
func (s Sample) Max() (time.Duration, bool) { return s.at(s.Len() - 1) }

// Median is described at Min.
func (s Sample) Median() (time.Duration, bool) {
	low, _ := s.at((s.Len() - 1) / 2)
	high, ok := s.at(s.Len() / 2)
	return (low + high) / 2, ok
}

func (s Sample) at(i int) (time.Duration, bool) {
	if i < 0 || i >= len(s.Values) {
		return 0, false
	}
	return s.Values[i], true
}

// Summary is what all trials of one fault on one speaker say, as one router saw them.
type Summary struct {
	Speaker, Fault, Router string
	// Planned says that the fault is done on purpose.
	Planned bool
	// Trials is how many there were.
	Trials int
	// Outage, Told, Gone and Back are those of the trials; Told only has those
	// in which the router was told anything, Back those in which it was measured.
	Outage, Told, Gone, Back Sample
	// Attempts and Failed are the sums.
	Attempts, Failed int
	// Limit is how long was waited for anything that never came.
	Limit time.Duration
	// Taken and After are those of the trials on a flat layer 2.
	Taken, After Sample
	// Splits is how many trials had two holders, Split for how long at most.
	Splits int
	Split  time.Duration
}

// Summaries sums up the trials by router, fault and speaker, each in the order
// of its first trial.
func (r *Results) Summaries() []Summary {
	type key struct{ router, fault, speaker string }
	groups := make(map[key][]Trial)
	rank := make(map[string]int) // of names, by first appearance
	var keys []key
	for _, t := range r.Trials {
		k := key{t.Router, t.Fault, t.Speaker}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], t)
		for _, name := range []string{"r " + t.Router, "f " + t.Fault, "s " + t.Speaker} {
			if _, ok := rank[name]; !ok {
				rank[name] = len(rank)
			}
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(
			cmp.Compare(rank["r "+a.router], rank["r "+b.router]),
			cmp.Compare(rank["f "+a.fault], rank["f "+b.fault]),
			cmp.Compare(rank["s "+a.speaker], rank["s "+b.speaker]),
		)
	})
	var list []Summary
	for _, k := range keys {
		list = append(list, summarise(groups[k]))
	}
	return list
}

// summarise sums up trials of one kind.
func summarise(trials []Trial) Summary {
	first := trials[0]
	s := Summary{Speaker: first.Speaker, Fault: first.Fault, Router: first.Router, Planned: first.Planned, Trials: len(trials)}
	var outage, told, gone, back, taken, after []*time.Duration
	for _, t := range trials {
		if t.Open {
			outage = append(outage, nil)
		} else {
			outage = append(outage, &t.Outage)
		}
		if t.Told != nil {
			told = append(told, t.Told)
		}
		if t.Back != nil {
			back = append(back, t.Back)
		}
		gone = append(gone, t.Gone)
		s.Attempts += t.Attempts
		s.Failed += t.Failed
		s.Limit = max(s.Limit, t.Limit)
		taken = append(taken, t.Taken)
		if t.After != nil {
			after = append(after, t.After)
		}
		if t.Holders > 1 {
			s.Splits++
		}
		s.Split = max(s.Split, t.Split)
	}
	s.Outage, s.Told, s.Back = newSample(outage), newSample(told), newSample(back)
	if first.Router == NoRouter {
		s.Taken, s.After = newSample(taken), newSample(after)
	} else {
		s.Gone = newSample(gone)
	}
	return s
}

// Floor is the router's own time in every trial in which it was plainly told to withdraw.
func (r *Results) Floor(router string) Sample {
	var list []*time.Duration
	for _, t := range r.Trials {
		if floor, ok := t.Floor(); ok && t.Router == router {
			list = append(list, &floor)
		}
	}
	return newSample(list)
}

// Routers are the routers of the trials, in the order of their first.
func (r *Results) Routers() []string {
	var list []string
	for _, t := range r.Trials {
		if !slices.Contains(list, t.Router) {
			list = append(list, t.Router)
		}
	}
	return list
}
