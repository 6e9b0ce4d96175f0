package holders

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/testenv/lab"
)

// Rule names a condition that must hold throughout an observation.
type Rule string

// The rules.
const (
	// TwoHolders: a VIP has one holder at a time. Two answers to one question break the
	// rule. So does a claim by a master after its successor's claim, unless the VIP came
	// back to it.
	TwoHolders Rule = "two holders"
	// Unannounced: a master that takes a VIP announces it immediately.
	Unannounced Rule = "unannounced"
	// Trespass: only the holder accepts packets to the VIP and, during the linger after a
	// planned change, the previous holder.
	Trespass Rule = "trespass"
)

// Violation is a broken rule, once or several times in a row.
type Violation struct {
	From, To time.Duration
	Times    int
	Rule     Rule
	VIP      netip.Addr
	// Master broke the rule; Other was the holder, if that matters.
	Master, Other string
	// Around lists the observations near that time, one line each.
	Around []string
}

// String returns the violation as one line.
func (v Violation) String() string {
	what := fmt.Sprintf("%s took %s without an announcement", v.Master, v.VIP)
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

// Limits bound what may happen between two masters although only one is the holder.
type Limits struct {
	// Together is the longest time between two answers to one question that rules out a
	// change of holder between them: a busy machine may delay one frame.
	Together time.Duration
	// Transit bounds the travel time of an unsolicited frame.
	Transit time.Duration
	// Return is the shortest time for a VIP to go to another master and come back.
	Return time.Duration
	// Word is the longest time between a new holder's first claim and its announcement.
	Word time.Duration
	// Opening is how long before its first claim a new holder may accept packets.
	Opening time.Duration
	// Linger is how long after a planned change the old holder may accept packets.
	Linger time.Duration
}

// DefaultLimits returns the limits of a configuration with `linger: 1s`, on a busy machine.
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

// Judge returns, in order, every time that more than one master had a VIP.
//
// The master gave an answer at some time between the question and its arrival, so a
// late frame alone is no violation. An announcement distinguishes a change of holder
// from a second holder: a master announces a VIP that returns to it.
func Judge(t *Trace, l Limits) []Violation {
	var found []Violation
	for _, vip := range t.vips() {
		list := t.ofVIP(vip)
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

func broken(r Rule, s Observation, other string) Violation {
	return Violation{From: s.At, To: s.At, Times: 1, Rule: r, Master: s.Master, Other: other}
}

// gather merges consecutive violations into one.
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
func (l Limits) twice(list []Observation) (found []Violation) {
	first := make(map[time.Duration]Observation) // by the time of the question
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

// earliest returns the earliest time that the master can have acted.
func (l Limits) earliest(s Observation) time.Duration {
	if s.Act == Answers || s.Act == Accepts {
		return s.Asked
	}
	return s.At - l.Transit
}

// reigns follows the claims from holder to holder, and finds the claims that fit no
// reign. Announcements after the end of the trace are unknown.
func (l Limits) reigns(list []Observation, end time.Duration) (reigns []Reign, found []Violation) {
	claims := slices.DeleteFunc(slices.Clone(list), func(s Observation) bool { return !s.claims() })
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
			// Sent before the change, and late.
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

// announced reports whether the master of a claim announces itself at about that time.
func (l Limits) announced(claims []Observation, c Observation) bool {
	from, _ := slices.BinarySearchFunc(claims, c.At-l.Word, func(s Observation, at time.Duration) int { return cmp.Compare(s.At, at) })
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

// goesOn reports whether the holder of a reign continues to claim after another's
// claim, too soon for the VIP to have gone and come back.
func (l Limits) goesOn(later []Observation, r Reign, c Observation) bool {
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

// trespasses finds packets that a master accepted without being allowed to.
func (l Limits) trespasses(list []Observation, reigns []Reign, moves []Move) (found []Violation) {
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

// mayAccept reports whether a master was allowed to accept a packet, and which master
// held the VIP then.
func (l Limits) mayAccept(s Observation, reigns []Reign, moves []Move) (holder string, ok bool) {
	// A reign covers the packet if it lasted from the request to the reply. If another
	// reign began in between, either master may be the holder.
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
		// A master accepts packets before it claims; by then the previous holder claims no more.
		if next == 0 || l.earliest(reigns[next-1].Last) <= s.At {
			return s.Master, true
		}
	}
	if next == 0 {
		return "no master", false
	}
	for _, m := range moves {
		if m.Master == s.Master && s.At >= m.From && s.Asked <= m.To+l.Linger {
			return s.Master, true
		}
	}
	return reigns[next-1].Master, false
}

// Flat returns the target of an observer on the node o1 of flat.clab.yml.
func Flat(l *lab.Lab) Target {
	return On(l, []string{"m1", "m2", "m3"},
		[]netip.Addr{netip.MustParseAddr("10.4.0.10"), netip.MustParseAddr("fd00:4::10")},
		netip.MustParseAddr("10.4.0.128"), netip.MustParseAddr("fd00:4::80"))
}

// On returns the target of an observer on the bridge "lan". The observer may use the
// addresses from each of the senders on.
func On(l *lab.Lab, masters []string, vips []netip.Addr, senders ...netip.Addr) Target {
	t := Target{Link: "eth1", VIPs: vips, Senders: senders, Masters: make(map[string]net.HardwareAddr)}
	for _, m := range masters {
		t.Masters[m] = l.Link(m, "lan").MAC(m)
	}
	return t
}
