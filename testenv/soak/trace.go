package soak

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/traffic"
)

// Never is a time that has not come.
const Never = time.Duration(math.MaxInt64)

// later returns instant+d, or Never if instant is Never.
func later(instant, d time.Duration) time.Duration {
	if instant == Never {
		return Never
	}
	return instant + d
}

// Incident is a fault that was made. Times are since the start of the run.
type Incident struct {
	Fault
	// Began is when breaking started and Broken when it had taken effect. The part is
	// certainly broken from Broken to Mending, and possibly from Began to Mended.
	Began  time.Duration `json:"beganNs"`
	Broken time.Duration `json:"brokenNs"`
	// Mending is when mending started and Mended when it was done; Never if it did not happen.
	Mending time.Duration `json:"mendingNs"`
	Mended  time.Duration `json:"mendedNs"`
}

// String returns the fault with its beginning and end.
func (i Incident) String() string {
	text := fmt.Sprintf("%s, from %s", i.Fault, clock(i.Broken))
	if i.Mending == Never {
		return text
	}
	return text + " to " + clock(i.Mending)
}

// Family is the IP version, 4 or 6.
type Family int

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return 4
	}
	return 6
}

// Sign is an externally visible trace of an announcement: a router's route to the VIP
// via a master or, if Router is empty, the VIP's address on that master.
type Sign struct {
	Router string `json:"router,omitempty"`
	Master string `json:"master"`
	Family Family `json:"family"`
}

// String describes the sign, as in "IPv4 route of r1 to m2".
func (s Sign) String() string {
	if s.Router == "" {
		return fmt.Sprintf("IPv%d address on %s", s.Family, s.Master)
	}
	return fmt.Sprintf("IPv%d route of %s to %s", s.Family, s.Router, s.Master)
}

// Change is the appearance or disappearance of a sign.
type Change struct {
	At time.Duration `json:"atNs"`
	Sign
	Present bool `json:"present"`
}

// String describes the change.
func (c Change) String() string {
	verb := "disappeared"
	if c.Present {
		verb = "appeared"
	}
	return fmt.Sprintf("%s %s", c.Sign, verb)
}

// Span is the time from one instant until just before another.
type Span struct {
	From time.Duration `json:"fromNs"`
	To   time.Duration `json:"toNs"`
}

// Crash is the unexpected end of a speaker.
type Crash struct {
	At     time.Duration `json:"atNs"`
	Master string        `json:"master"`
	Reason string        `json:"reason"`
}

// Window is the time around one planned change while no fault was active, with the client's
// results.
type Window struct {
	Span
	Change Fault `json:"change"`
	traffic.Count
}

// Trace holds all faults and observations of a run. [Check] judges it.
type Trace struct {
	// Ready is when every master had been seen announcing: from then on all must be.
	Ready     time.Duration `json:"readyNs"`
	End       time.Duration `json:"endNs"`
	Incidents []Incident    `json:"incidents"`
	// Changes are in order of time; no sign is present at the start.
	Changes []Change `json:"changes"`
	// Stalls are the times that the observer did not run, in order.
	Stalls  []Span   `json:"stalls"`
	Crashes []Crash  `json:"crashes"`
	Windows []Window `json:"windows"`
}

// presence returns when the sign was present.
func (t *Trace) presence(s Sign) []Span {
	var spans []Span
	for _, c := range t.Changes {
		open := len(spans) > 0 && spans[len(spans)-1].To == Never
		switch {
		case c.Sign != s || c.Present == open:
		case c.Present:
			spans = append(spans, Span{c.At, Never})
		default:
			spans[len(spans)-1].To = c.At
		}
	}
	return spans
}

// stalled returns how long the observer did not run within the span.
func (t *Trace) stalled(in Span) time.Duration {
	var sum time.Duration
	for _, s := range t.Stalls {
		sum += max(0, min(s.To, in.To)-max(s.From, in.From))
	}
	return sum
}

// after returns the instant when the observer has run for d since an instant.
func (t *Trace) after(instant, d time.Duration) time.Duration {
	end := instant + d
	for _, s := range t.Stalls { // in order and disjoint
		if s.To > instant && s.From < end {
			end += s.To - max(s.From, instant)
		}
	}
	return end
}

// around lists the events near an instant that may affect a sign, in order.
func (t *Trace) around(at time.Duration, s Sign) []string {
	const before, after = 20 * time.Second, 3 * time.Second
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	add := func(when time.Duration, text string) {
		if when >= at-before && when <= at+after {
			lines = append(lines, line{when, text})
		}
	}
	for _, i := range t.Incidents {
		if i.touches(s) || i.Master == s.Master {
			add(i.Broken, i.Fault.String())
			if i.Mended != Never {
				add(i.Mended, i.Fault.String()+": mended")
			}
		}
	}
	for _, c := range t.Changes {
		if c.Master == s.Master && (c.Router == s.Router || c.Router == "") {
			add(c.At, c.String())
		}
	}
	for _, st := range t.Stalls {
		add(st.From, fmt.Sprintf("the observer stalled for %v", (st.To-st.From).Round(time.Millisecond)))
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var out []string
	for _, l := range lines {
		out = append(out, clock(l.at)+" "+l.text)
	}
	return out
}

// touches reports whether the incident affects the sign's path: its master, its router
// or the link between them.
func (i Incident) touches(s Sign) bool {
	if i.Router != "" && i.Router != s.Router {
		return false
	}
	return i.Master == "" || i.Master == s.Master
}

// clock formats a time since the start of the run.
func clock(d time.Duration) string { return fmt.Sprintf("+%.3fs", d.Seconds()) }
