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
func Speeds(t *Trace) []Speed {
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
			if s.Router == "" || !i.touches(s) || i.Mended == Never {
				continue
			}
			gone, back := i.course(t.presence(s))
			if gone == Never || !t.alone(i, s, back) {
				continue
			}
			list[n].Gone = max(list[n].Gone, gone-i.Broken)
			list[n].Back = max(list[n].Back, min(back, t.End)-i.Mended)
		}
	}
	return list
}

// course returns when a sign went because of the incident and when it was back;
// Never if it did not go, or has not come back. It was there a moment before.
func (i Incident) course(presence []Span) (gone, back time.Duration) {
	gone, back = Never, Never
	for _, p := range presence {
		switch {
		case p.From < i.Began-moment && p.To >= i.Broken && p.To < i.Mended:
			gone = p.To
		case gone != Never && back == Never && p.From > i.Mending:
			back = max(p.From, i.Mended)
		}
	}
	return gone, back
}

// moment is how long all is well before a fault whose speed counts.
const moment = 2 * time.Second

// alone reports whether nothing else befell the sign from a moment before the
// incident until a time.
func (t *Trace) alone(i Incident, s Sign, until time.Duration) bool {
	return !slices.ContainsFunc(t.Incidents, func(other Incident) bool {
		return other != i && other.touches(s) && other.Began < until && other.Mended > i.Began-moment
	})
}
