package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rule is something that must hold throughout a run.
type Rule string

// The rules.
const (
	// Stale: no route leads to a master, and no VIP address is on it, for longer
	// than it takes to detect that it must not.
	Stale Rule = "stale"
	// Early: nothing is announced before its checks have passed.
	Early Rule = "early"
	// Missing: a master that is well and connected is announced.
	Missing Rule = "missing"
	// Crashed: no speaker ends unasked.
	Crashed Rule = "crashed"
	// Raced: the race detector finds nothing, except within a library.
	Raced Rule = "raced"
	// Dropped: a planned change costs no connection.
	Dropped Rule = "dropped"
	// Grown: memory, goroutines and descriptors do not grow.
	Grown Rule = "grown"
	// Disagrees: what a speaker says of an address on a flat layer 2 its kernel does.
	Disagrees Rule = "disagrees"
)

// Violation is a rule broken.
type Violation struct {
	At     time.Duration `json:"atNs"`
	Rule   Rule          `json:"rule"`
	Reason string        `json:"reason"`
	// Around is what happened about then, one line each.
	Around []string `json:"around,omitempty"`
}

// String is the violation in one line.
func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", clock(v.At), v.Rule, v.Reason) }

// blink is how long a route may be away while a router replaces it: an IPv6
// route is removed and added.
const blink = 250 * time.Millisecond

// resets is how many connections a planned change may cost by a reset: those
// whose handshake is under way at the moment when the routers spread the load
// anew come to a master that does not know them.
const resets = 2

// Check judges a trace and returns what it finds in the order of time.
func Check(t *Trace, l Limits) []Violation {
	var found []Violation
	report := func(at time.Duration, r Rule, s Sign, format string, args ...any) {
		found = append(found, Violation{at, r, fmt.Sprintf(format, args...), t.around(at, s)})
	}
	for _, s := range t.signs() {
		presence := t.presence(s)
		for _, i := range t.Incidents {
			if at, allowed, ok := l.stale(t, i, s, presence); ok {
				report(at, Stale, s, "%s while %s; it was to be gone by %s", s, i, clock(allowed))
			}
			if at, ok := l.early(t, i, s, presence); ok {
				report(at, Early, s, "%s appeared %v after %s, before its checks can have passed", s, (at - i.Mending).Round(time.Millisecond), i)
			}
		}
		for _, gap := range l.missing(t, s, presence) {
			report(gap.From, Missing, s, "no %s until %s, though nothing is wrong", s, end(t, gap))
		}
	}
	return inOrder(append(found, t.mishaps(func(Span) bool { return false })...))
}

// mishaps are the crashes, and the planned changes that cost too many connections,
// unless they are excused.
func (t *Trace) mishaps(excused func(Span) bool) (found []Violation) {
	for _, c := range t.Crashes {
		found = append(found, Violation{c.At, Crashed, fmt.Sprintf("the speaker of %s ended: %s", c.Master, c.Reason), t.around(c.At, Sign{Master: c.Master})})
	}
	for _, w := range t.Windows {
		if n, ok := w.dropped(); ok && !excused(w.Span) {
			what := fmt.Sprintf("%s, all else well, cost %d of %d connections: %v", w.Change, n, w.Attempts, w.Failures)
			found = append(found, Violation{w.From, Dropped, what, t.around(w.From, Sign{Master: w.Change.Master})})
		}
	}
	return found
}

func inOrder(found []Violation) []Violation {
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return found
}

func end(t *Trace, s Span) string {
	if s.To >= t.End {
		return "the end"
	}
	return clock(s.To)
}

// signs are all that have ever been seen.
func (t *Trace) signs() []Sign {
	var list []Sign
	for _, c := range t.Changes {
		if !slices.Contains(list, c.Sign) {
			list = append(list, c.Sign)
		}
	}
	return list
}

// deadline is when the sign is to be gone after the incident, with all that
// excuses a delay taken into account.
func (l Limits) deadline(t *Trace, i Incident, s Sign) (at time.Duration, ok bool) {
	if l.BFD > 0 && l.steady(t, i, s) {
		l.Silence = l.BFD
	}
	d, ok := l.gone(i, s)
	if !ok || i.Broken == Never {
		return 0, false
	}
	at = i.Broken + d
	for _, other := range t.Incidents { // in the order of their beginnings
		if other != i && other.Began < at+l.Slack {
			at = max(at, l.excused(i, other, s))
		}
	}
	if at == Never {
		return 0, false
	}
	return t.after(i.Broken, at+l.Slack-i.Broken), true
}

// steady reports whether the sign was to be there when the incident began: all
// that had befallen it before was over.
func (l Limits) steady(t *Trace, i Incident, s Sign) bool {
	return !slices.ContainsFunc(t.Incidents, func(other Incident) bool {
		d, ok := l.back(other, s)
		return ok && other.Began < i.Began && (other.Mended == Never || t.after(other.Mended, d+l.Slack) > i.Began)
	})
}

// stale returns when the sign was there although it was to be gone.
func (l Limits) stale(t *Trace, i Incident, s Sign, presence []Span) (at, deadline time.Duration, found bool) {
	deadline, ok := l.deadline(t, i, s)
	if !ok {
		return 0, 0, false
	}
	until := min(i.Mending, t.End)
	for _, p := range presence {
		if from := max(p.From, deadline); from < min(p.To, until) {
			return from, deadline, true
		}
	}
	return 0, 0, false
}

// Judged counts the signs that were to be gone before a fault was mended: how
// often the rule [Stale] could have been broken.
func Judged(t *Trace, l Limits) int {
	n := 0
	for _, s := range t.signs() {
		for _, i := range t.Incidents {
			if deadline, ok := l.deadline(t, i, s); ok && deadline < min(i.Mending, t.End) {
				n++
			}
		}
	}
	return n
}

// early returns when the sign appeared too soon after an illness that was long
// enough to be noticed.
func (l Limits) early(t *Trace, i Incident, s Sign, presence []Span) (at time.Duration, found bool) {
	deadline, ok := l.deadline(t, i, s)
	if !ok || i.Mending == Never || deadline >= i.Mending {
		return 0, false
	}
	for _, p := range presence {
		if p.From > i.Mending && p.From < i.Mending+l.earliest(i.Kind) {
			return p.From, true
		}
	}
	return 0, false
}

// due returns when the sign is to be there.
func (l Limits) due(t *Trace, s Sign) []Span {
	excuses := []Span{{0, t.Ready}}
	for _, st := range t.Stalls {
		if s.Router != "" && l.Starved > 0 && st.To-st.From >= l.Starved {
			excuses = append(excuses, Span{st.From - time.Second, t.after(st.To, l.Reconnect+l.Slack)})
		}
	}
	for _, i := range t.Incidents {
		d, ok := l.back(i, s)
		if !ok {
			continue
		}
		e := Span{i.Began, Never}
		if i.Mended != Never {
			e.To = t.after(i.Mended, d+l.Slack)
		}
		excuses = append(excuses, e)
	}
	return without(Span{0, t.End}, excuses)
}

// missing returns when the sign was away although it was due.
func (l Limits) missing(t *Trace, s Sign, presence []Span) []Span {
	var gaps []Span
	due := l.due(t, s)
	for _, away := range without(Span{0, t.End}, presence) {
		if s.Router != "" && away.To-away.From-t.stalled(away) < blink {
			continue
		}
		for _, d := range due {
			if gap := (Span{max(away.From, d.From), min(away.To, d.To)}); gap.From < gap.To {
				gaps = append(gaps, gap)
			}
		}
	}
	return gaps
}

// Due is the share of the time, over all signs, in which they were to be
// there: how much the rule [Missing] had to judge.
func Due(t *Trace, l Limits) float64 {
	var due, all time.Duration
	for _, s := range t.signs() {
		for _, d := range l.due(t, s) {
			due += d.To - d.From
		}
		all += t.End
	}
	return float64(due) / float64(max(all, 1))
}

// without returns what is left of a span when others are taken out.
func without(whole Span, others []Span) []Span {
	others = slices.SortedFunc(slices.Values(others), func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var left []Span
	at := whole.From
	for _, o := range others {
		if o.From > at {
			left = append(left, Span{at, min(o.From, whole.To)})
		}
		at = max(at, o.To)
		if at >= whole.To {
			return left
		}
	}
	return append(left, Span{at, whole.To})
}

// dropped counts the connections that failed, and reports whether they are too many.
func (w Window) dropped() (n int, tooMany bool) {
	n = w.Failed()
	return n, n > w.Failures["reset"] || n > resets
}
