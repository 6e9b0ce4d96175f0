package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rule names a condition that must hold throughout a run.
type Rule string

// The rules.
const (
	// Stale: no route leads to a master, and no VIP address is on it, longer than
	// detecting its failure takes.
	Stale Rule = "stale"
	// Early: nothing is announced before its checks have passed.
	Early Rule = "early"
	// Missing: a master that is healthy and connected is announced.
	Missing Rule = "missing"
	// Crashed: no speaker's process ends unless the soak ended it.
	Crashed Rule = "crashed"
	// Raced: the race detector reports nothing outside GoBGP.
	Raced Rule = "raced"
	// Dropped: a planned change costs no connection.
	Dropped Rule = "dropped"
	// Grown: a speaker's memory, goroutines and descriptors do not grow.
	Grown Rule = "grown"
	// Disagrees: on a flat layer 2 the kernel matches the state that the speaker reports for an
	// address.
	Disagrees Rule = "disagrees"
)

// Violation is one broken rule.
type Violation struct {
	At     time.Duration `json:"atNs"`
	Rule   Rule          `json:"rule"`
	Reason string        `json:"reason"`
	// Around lists the events near At, one line each.
	Around []string `json:"around,omitempty"`
}

// String returns the violation as one line.
func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", clock(v.At), v.Rule, v.Reason) }

// blink bounds how long a router may lack a route while replacing it: it removes an
// IPv6 route before adding the new one.
const blink = 250 * time.Millisecond

// resets bounds the connections that one planned change may reset. Routers that rehash
// their load may send a handshake in progress to a master that does not know it.
const resets = 2

// Check judges a trace and returns the violations in order of time.
func Check(t *Trace, l Limits) []Violation {
	var found []Violation
	report := func(at time.Duration, r Rule, s Sign, format string, args ...any) {
		found = append(found, Violation{at, r, fmt.Sprintf(format, args...), t.around(at, s)})
	}
	for _, s := range t.signs() {
		presence := t.presence(s)
		for _, i := range t.Incidents {
			deadline, ok := l.deadline(t, i, s)
			if !ok {
				continue
			}
			if wrong := common(presence, Span{deadline, min(i.Mending, t.End)}); len(wrong) > 0 {
				report(wrong[0].From, Stale, s, "%s while %s; it had to be gone by %s", s, i, clock(deadline))
			}
			if i.Mending == Never || deadline >= i.Mending { // perhaps not detected
				continue
			}
			soon := slices.IndexFunc(presence, func(p Span) bool { return p.From > i.Mending && p.From < i.Mending+earliest(i.Kind) })
			if soon >= 0 {
				at := presence[soon].From
				report(at, Early, s, "%s appeared %v after %s, before its checks can have passed", s, (at - i.Mending).Round(time.Millisecond), i)
			}
		}
		for _, gap := range l.missing(t, s, presence) {
			report(gap.From, Missing, s, "no %s until %s, although no fault explains it", s, end(t, gap))
		}
	}
	return inOrder(append(found, t.mishaps(func(Span) bool { return false })...))
}

// mishaps returns the crashes and the planned changes that cost too many connections
// and are not excused.
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

// signs returns every sign that was seen.
func (t *Trace) signs() []Sign {
	var list []Sign
	for _, c := range t.Changes {
		if !slices.Contains(list, c.Sign) {
			list = append(list, c.Sign)
		}
	}
	return list
}

// deadline returns when the sign must be gone after the incident, allowing for other
// incidents and stalls. ok is false if it need not go.
func (l Limits) deadline(t *Trace, i Incident, s Sign) (at time.Duration, ok bool) {
	if l.BFD > 0 && l.steady(t, i, s) {
		l.Silence = l.BFD
	}
	d, ok := l.gone(i, s)
	if !ok || i.Broken == Never {
		return 0, false
	}
	at = i.Broken + d
	for _, other := range t.Incidents { // in order of their beginnings
		if other != i && other.Began < at+l.Slack {
			at = max(at, l.excused(i, other, s))
		}
	}
	if at == Never {
		return 0, false
	}
	return t.after(i.Broken, at+l.Slack-i.Broken), true
}

// steady reports whether the sign had to be present when the incident began: all
// earlier incidents were over.
func (l Limits) steady(t *Trace, i Incident, s Sign) bool {
	return !slices.ContainsFunc(t.Incidents, func(other Incident) bool {
		d, ok := back(other, s)
		return ok && other.Began < i.Began && (other.Mended == Never || t.after(other.Mended, d+l.Slack) > i.Began)
	})
}

// Judged counts the signs that had to be gone before a fault was mended: the
// opportunities to break the rule [Stale].
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

// due returns when the sign must be present.
func (l Limits) due(t *Trace, s Sign) []Span {
	excuses := []Span{{0, t.Ready}}
	for _, st := range t.Stalls {
		if s.Router != "" && l.Starved > 0 && st.To-st.From >= l.Starved {
			excuses = append(excuses, Span{st.From - time.Second, t.after(st.To, reconnect+l.Slack)})
		}
	}
	for _, i := range t.Incidents {
		d, ok := back(i, s)
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

// missing returns when the sign was absent although it was due.
func (l Limits) missing(t *Trace, s Sign, presence []Span) []Span {
	var gaps []Span
	due := l.due(t, s)
	for _, away := range without(Span{0, t.End}, presence) {
		if s.Router == "" || away.To-away.From-t.stalled(away) >= blink {
			gaps = append(gaps, common(due, away)...)
		}
	}
	return gaps
}

// Due returns the share of the time that signs were due, over all signs: the time that
// the rule [Missing] could judge.
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

// common returns the parts of the spans within another.
func common(spans []Span, within Span) (parts []Span) {
	for _, s := range spans {
		if p := (Span{max(s.From, within.From), min(s.To, within.To)}); p.From < p.To {
			parts = append(parts, p)
		}
	}
	return parts
}

// without returns the parts of whole outside others.
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
