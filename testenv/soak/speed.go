package soak

import (
	"slices"
	"time"
)

// Speed is how fast the signs went and came back at faults of one kind that
// nothing else befell.
type Speed struct {
	Kind Kind `json:"kind"`
	// Faults is how many were made, and Together how long they lasted.
	Faults   int           `json:"faults"`
	Together time.Duration `json:"togetherNs"`
	// Gone and Back are the longest times from a fault to a route's end, and
	// from its mending to the route; zero if none was seen.
	Gone time.Duration `json:"goneNs"`
	Back time.Duration `json:"backNs"`
}

// Speeds sums up a trace by kind, in the order of the kinds' first faults.
func Speeds(t *Trace, l Limits) []Speed {
	var list []Speed
	for _, i := range t.Incidents {
		n := slices.IndexFunc(list, func(s Speed) bool { return s.Kind == i.Kind })
		if n < 0 {
			n = len(list)
			list = append(list, Speed{Kind: i.Kind})
		}
		list[n].Faults++
		list[n].Together += min(i.Mending, t.End) - min(i.Broken, t.End)
		for _, s := range t.signs() {
			if s.Router == "" || !i.touches(s) || !l.alone(t, i, s) {
				continue
			}
			gone, back := i.speed(t.presence(s))
			list[n].Gone, list[n].Back = max(list[n].Gone, gone), max(list[n].Back, back)
		}
	}
	return list
}

// alone reports whether nothing else befell the sign around the incident.
func (l Limits) alone(t *Trace, i Incident, s Sign) bool {
	if i.Mended == Never || !l.steady(t, i, s) {
		return false
	}
	d, _ := l.back(i, s)
	return !slices.ContainsFunc(t.Incidents, func(other Incident) bool {
		return other != i && other.touches(s) && other.Began >= i.Began && other.Began < i.Mended+d
	})
}

// speed returns how long after the incident a sign went, and how long after
// its mending it came back; zero if it did not.
func (i Incident) speed(presence []Span) (gone, back time.Duration) {
	for _, p := range presence {
		if p.From < i.Broken && p.To >= i.Broken && p.To < i.Mended {
			gone = p.To - i.Broken
		}
		if p.From > i.Mending && back == 0 {
			back = max(p.From-i.Mended, 0)
		}
	}
	if gone == 0 {
		back = 0 // it came back from something else
	}
	return gone, back
}
