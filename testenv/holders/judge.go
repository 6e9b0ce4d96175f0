package holders

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Rule is something that must hold throughout an observation.
type Rule string

// The rules.
const (
	// TwoHolders: a VIP is one master's at a time. Broken by two answers to the
	// same question, and by a claim of a master whose successor has claimed the
	// VIP already, unless the VIP came back to it.
	TwoHolders Rule = "two holders"
	// Unannounced: a master that takes a VIP says so, and at once.
	Unannounced Rule = "unannounced"
	// Trespass: only the holder takes packets to the VIP, and after a planned
	// change, for the linger, who was it before.
	Trespass Rule = "trespass"
)

// Violation is a rule broken, once or over and over in a row.
type Violation struct {
	From, To time.Duration
	Times    int
	Rule     Rule
	VIP      netip.Addr
	// Master broke the rule; Other was the holder, if that matters.
	Master, Other string
	// Around is what was seen about then, one line each.
	Around []string
}

// String is the violation in one line.
func (v Violation) String() string {
	what := fmt.Sprintf("%s took %s without a word", v.Master, v.VIP)
	switch v.Rule {
	case TwoHolders:
		what = fmt.Sprintf("%s claims %s while %s has it", v.Master, v.VIP, v.Other)
	case Trespass:
		what = fmt.Sprintf("%s accepts packets to %s while %s has it", v.Master, v.VIP, v.Other)
	}
	if v.Times > 1 {
		what += fmt.Sprintf(", %d times until %s", v.Times, clock(v.To))
	}
	return fmt.Sprintf("%s %s: %s", clock(v.From), v.Rule, what)
}

// Limits are what may go on between two masters without their both being holders.
type Limits struct {
	// Together is how close two answers to one question are if no change of the
	// holder fits between: one frame may have been held up on a busy machine.
	Together time.Duration
	// Transit is how long a frame may be under way that nobody asked for.
	Transit time.Duration
	// Return is how long a VIP takes at least to go to another and come back.
	Return time.Duration
	// Word is how far from its first claim a new holder's announcement may be.
	Word time.Duration
	// Opening is how long before its first claim a new holder may accept packets.
	Opening time.Duration
	// Linger is how long after a planned change the old holder may accept packets.
	Linger time.Duration
}

// DefaultLimits are those of a configuration with `linger: 1s`, on a machine
// that is busy.
func DefaultLimits() Limits {
	return Limits{
		Together: 2 * time.Millisecond,
		Transit:  5 * time.Millisecond,
		Return:   100 * time.Millisecond,
		Word:     250 * time.Millisecond,
		Opening:  250 * time.Millisecond,
		Linger:   1500 * time.Millisecond,
	}
}

// Judge finds every time at which more than one master had a VIP, in order.
//
// What the observer has of an answer is an interval, from question to arrival,
// in which it was given, so nothing is held against a frame that was merely
// late. A change of the holder is told from a second holder by its
// announcement: who comes back by right says so.
func Judge(t *Trace, l Limits) []Violation {
	var found []Violation
	for _, vip := range t.vips() {
		list := t.of(vip)
		sortByTime(list)
		reigns, broken := l.reigns(list, t.End)
		broken = append(broken, l.twice(list)...)
		broken = append(broken, l.trespasses(list, reigns, t.Moves)...)
		for _, v := range gather(broken) {
			v.VIP, v.Around = vip, t.around(vip, v.From)
			found = append(found, v)
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.From, b.From) })
	return found
}

func broken(r Rule, s Sighting, other string) Violation {
	return Violation{From: s.At, To: s.At, Times: 1, Rule: r, Master: s.Master, Other: other}
}

// gather makes one violation of those in a row.
func gather(list []Violation) (out []Violation) {
	const pause = time.Second
	slices.SortStableFunc(list, func(a, b Violation) int { return cmp.Compare(a.From, b.From) })
	for _, v := range list {
		i := slices.IndexFunc(out, func(o Violation) bool {
			return o.Rule == v.Rule && o.Master == v.Master && o.Other == v.Other && v.From-o.To < pause
		})
		if i < 0 {
			out = append(out, v)
			continue
		}
		out[i].To, out[i].Times = v.To, out[i].Times+1
	}
	return out
}

// twice finds the questions that two masters answered.
func (l Limits) twice(list []Sighting) (found []Violation) {
	first := make(map[time.Duration]Sighting) // by the time of the question
	for _, s := range list {
		if s.Act != Answers {
			continue
		}
		f, ok := first[s.Asked]
		switch {
		case !ok:
			first[s.Asked] = s
		case f.Master != s.Master && s.At-f.At <= l.Together:
			found = append(found, broken(TwoHolders, s, f.Master))
		}
	}
	return found
}

// earliest is when the master can have acted at the earliest.
func (l Limits) earliest(s Sighting) time.Duration {
	if s.Act == Answers || s.Act == Accepts {
		return s.Asked
	}
	return s.At - l.Transit
}

// reigns follows the claims from holder to holder, and finds those that fit nowhere. What comes
// after the end of the trace is not known, be it an announcement.
func (l Limits) reigns(list []Sighting, end time.Duration) (reigns []Reign, found []Violation) {
	claims := slices.DeleteFunc(slices.Clone(list), func(s Sighting) bool { return !s.claims() })
	for i, c := range claims {
		if len(reigns) == 0 {
			reigns = append(reigns, Reign{c.VIP, c.Master, c, c})
			continue
		}
		now := &reigns[len(reigns)-1]
		switch {
		case c.Master == now.Master:
			now.Last = c
		case len(reigns) > 1 && c.Master == reigns[len(reigns)-2].Master && l.earliest(c) <= now.First.At:
			// From before the change, and late.
		case l.goesOn(claims[i+1:], *now, c):
			found = append(found, broken(TwoHolders, c, now.Master))
		default:
			if c.At+l.Word <= end && !l.announced(claims, c) {
				found = append(found, broken(Unannounced, c, now.Master))
			}
			reigns = append(reigns, Reign{c.VIP, c.Master, c, c})
		}
	}
	return reigns, found
}

// announced reports whether the master of a claim announces itself about then.
func (l Limits) announced(claims []Sighting, c Sighting) bool {
	from, _ := slices.BinarySearchFunc(claims, c.At-l.Word, func(s Sighting, at time.Duration) int { return cmp.Compare(s.At, at) })
	for _, s := range claims[from:] {
		if s.At > c.At+l.Word {
			return false
		}
		if s.Master == c.Master && s.Act == Announces {
			return true
		}
	}
	return false
}

// goesOn reports whether the holder of a reign claims on after another's claim
// as if nothing had been, too soon for the VIP to have gone and come back.
func (l Limits) goesOn(later []Sighting, r Reign, c Sighting) bool {
	for _, s := range later {
		if s.At > r.Last.At+l.Return {
			return false
		}
		if s.Master == r.Master && l.earliest(s) > c.At {
			return true
		}
	}
	return false
}

// trespasses finds packets that were taken by a master without a right to.
func (l Limits) trespasses(list []Sighting, reigns []Reign, moves []Move) (found []Violation) {
	for _, s := range list {
		if s.Act != Accepts {
			continue
		}
		if holder, ok := l.mayAccept(s, reigns, moves); !ok {
			found = append(found, broken(Trespass, s, holder))
		}
	}
	return found
}

// mayAccept reports whether a master may have taken a packet when it did, and
// who held the VIP then.
func (l Limits) mayAccept(s Sighting, reigns []Reign, moves []Move) (holder string, ok bool) {
	// The reign that was certainly on when the packet went out, and until its
	// answer came; if another began in between, either may be.
	next := slices.IndexFunc(reigns, func(r Reign) bool { return r.First.At >= s.Asked })
	if next < 0 {
		next = len(reigns)
	}
	for i := max(next-1, 0); i < len(reigns) && l.earliest(reigns[i].First) <= s.At; i++ {
		if reigns[i].Master == s.Master {
			return s.Master, true
		}
	}
	if next < len(reigns) && reigns[next].Master == s.Master && reigns[next].First.At-s.At <= l.Opening {
		// It opens before it claims; by then the one before claims no more.
		if next == 0 || l.earliest(reigns[next-1].Last) <= s.At {
			return s.Master, true
		}
	}
	if next == 0 {
		return "nobody", false
	}
	for _, m := range moves {
		if m.Master == s.Master && s.At >= m.From && s.Asked <= m.To+l.Linger {
			return s.Master, true
		}
	}
	return reigns[next-1].Master, false
}
