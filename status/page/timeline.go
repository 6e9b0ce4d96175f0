package page

import (
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/eventlog"
)

const (
	// window is the time span of the timeline, width its width in units, and mostLanes its most rows.
	window    = time.Hour
	width     = 720
	mostLanes = 30
)

// lane is the history of an address, a check or a session.
type lane struct {
	Name  string
	Spans []span
}

// span is a time in one state.
type span struct {
	X, Width    float64
	Mood, State string
	From        time.Time
}

// lanes returns the rows of the timeline, and the number of rows beyond mostLanes. Before the oldest remembered event a
// row is blank.
func lanes(s admin.Status, now time.Time) (out []lane, left int) {
	add := func(subject, name, state string, since time.Time, mood func(state string) string) {
		if len(out) == mostLanes {
			left++
			return
		}
		out = append(out, lane{name, spans(s.Events, subject, state, since, now, mood)})
	}
	for _, v := range s.VIPs {
		add("vip "+v.Name+" "+v.Address.String(), v.Name+" "+v.Address.String(), string(v.Stage), v.Since, stageMood)
	}
	for _, c := range s.Checks {
		add("check "+c.Name, "check "+c.Name, c.State.String(), c.Since, checkMood)
	}
	for _, p := range s.Peers {
		state := "down"
		if p.State == bgp.Established {
			state = string(p.State)
		}
		add("peer "+p.Name, "peer "+p.Name, state, p.Since, checkMood)
	}
	return out, left
}

// spans returns the states of a subject, the latest first: the present state since a time and, from its events, which
// are newest first, the states before.
func spans(events []eventlog.Event, subject, state string, since, now time.Time, mood func(string) string) []span {
	from := []eventlog.Event{{At: since, State: state}}
	for _, e := range events {
		last := &from[len(from)-1]
		switch {
		case e.Of != subject:
		case e.State == last.State && e.At.Before(last.At):
			last.At = e.At
		case e.At.Before(last.At):
			from = append(from, e)
		}
	}
	begin, end := now.Add(-window), now
	var out []span
	for _, e := range from {
		at := e.At
		if at.Before(begin) {
			at = begin
		}
		if at.Before(end) {
			out = append(out, span{X: place(at, now), Width: place(end, now) - place(at, now), Mood: mood(e.State), State: e.State, From: e.At})
			end = at
		}
	}
	return out
}

// place returns the position of a time in the timeline.
func place(t, now time.Time) float64 { return width * (1 - now.Sub(t).Seconds()/window.Seconds()) }

func stageMood(state string) string {
	switch speaker.Stage(state) {
	case speaker.Announced:
		return good
	case speaker.Withdrawn:
		return idle
	}
	return odd
}

func checkMood(state string) string {
	switch state {
	case health.Healthy.String(), string(bgp.Established):
		return good
	case health.Unknown.String():
		return odd
	}
	return bad
}
