package soak

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Schedule determines the kind, time and duration of each fault. It is a pure function
// of its fields: the same seed makes the same faults.
type Schedule struct {
	Seed uint64
	// Masters and Routers are the names of the nodes to break.
	Masters, Routers []string
	// Survivor is the master with a speaker that is never restarted, so that its growth can be
	// measured.
	Survivor string
	// Storm is how long the faults of a round last.
	Storm time.Duration
	// kinds are the faults to draw from.
	kinds []trait
	flat  bool
	// wild and calm bound the mean time between the beginnings of two faults, drawn for
	// each round. The fewer faults overlap, the less is excused.
	wild, calm time.Duration
}

// newSchedule returns the schedule of a topology. On the flat one faults are denser
// and spare no master, so growth is not measured there.
func newSchedule(o Options) Schedule {
	s := Schedule{Seed: o.Seed, Masters: masters, Storm: o.Storm, flat: o.Flat}
	absent := listed
	if !o.Join {
		absent = joined
	}
	s.kinds = slices.DeleteFunc(traits(), func(t trait) bool { return s.odds(t).weight == 0 || t.nature.includes(absent) })
	if o.Flat {
		s.Routers, s.wild, s.calm = []string{lan}, 400*time.Millisecond, 800*time.Millisecond
	} else {
		s.Routers, s.wild, s.calm, s.Survivor = routers, 800*time.Millisecond, 3*time.Second, masters[0]
	}
	return s
}

func (s Schedule) odds(t trait) odds {
	if s.flat {
		return t.flat
	}
	return t.routed
}

const (
	// rest is the least time between two faults of the same part.
	rest = 500 * time.Millisecond
	// brief is the share of faults that are short.
	brief = 0.2
	// blackout is the probability that a fault may hit the last healthy master.
	blackout = 0.15
)

// Round returns the faults of round n in order of their beginnings. They overlap, but
// never on one part, nor on two routers. Most spare at least one master.
func (s Schedule) Round(n int) []Fault {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	pace := float64(s.wild) + rng.Float64()*float64(s.calm-s.wild)
	var list []Fault
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() * pace)
		if at >= s.Storm-time.Second {
			return list
		}
		f := s.draw(rng, at)
		if s.fits(rng, list, f) {
			list = append(list, f)
		}
	}
}

// draw returns a fault that begins at the given time and ends within the storm.
func (s Schedule) draw(rng *rand.Rand, at time.Duration) Fault {
	t := s.pick(rng)
	f := Fault{Kind: t.kind, Part: t.part, At: at}
	odds := s.odds(t)
	least, most := time.Duration(odds.least)*time.Millisecond, time.Duration(odds.most)*time.Millisecond
	// Faults too short to be detected find other bugs than long ones.
	if rng.Float64() < brief {
		most = min(most, least+time.Second)
	}
	f.For = min(least+time.Duration(rng.Float64()*float64(most-least)), s.Storm-at)
	if !t.part.common() {
		f.Master = s.Masters[rng.IntN(len(s.Masters))]
		if t.nature.includes(restarts) {
			others := s.mastersFor(t)
			f.Master = others[rng.IntN(len(others))]
		}
	}
	if t.part == Router || t.part == Link {
		f.Router = s.Routers[rng.IntN(len(s.Routers))]
	}
	return f
}

// pick draws a kind by weight.
func (s Schedule) pick(rng *rand.Rand) trait {
	total := 0
	for _, t := range s.kinds {
		total += s.odds(t).weight
	}
	x := rng.IntN(total)
	for _, t := range s.kinds {
		if x -= s.odds(t).weight; x < 0 {
			return t
		}
	}
	panic("soak: the weights do not add up")
}

// fits reports whether a fault may be added to the earlier ones in list.
func (s Schedule) fits(rng *rand.Rand, list []Fault, f Fault) bool {
	down := make(map[string]bool)
	if s.traitOf(f.Kind).nature.includes(fatal) {
		down[f.Master] = true
	}
	for _, g := range list {
		if g.At+g.For+rest <= f.At {
			continue
		}
		if overlap(s.claims(g), s.claims(f)) || g.Part == Router && f.Part == Router {
			return false
		}
		if s.traitOf(g.Kind).nature.includes(fatal) {
			down[g.Master] = true
		}
	}
	return len(down) < len(s.Masters) || rng.Float64() < blackout
}

// Planned returns the planned change after round n; the kinds take turns.
func (s Schedule) Planned(n int) Fault {
	kinds := slices.DeleteFunc(slices.Clone(s.kinds), func(t trait) bool { return !t.nature.includes(planned) })
	t := kinds[n%len(kinds)]
	masters := s.mastersFor(t)
	return Fault{Kind: t.kind, Part: t.part, Master: masters[n%len(masters)], For: 3 * time.Second}
}

// mastersFor returns the masters that a fault may hit.
func (s Schedule) mastersFor(t trait) []string {
	return slices.DeleteFunc(slices.Clone(s.Masters), func(m string) bool { return t.nature.includes(restarts) && m == s.Survivor })
}

func (s Schedule) traitOf(k Kind) trait {
	return s.kinds[slices.IndexFunc(s.kinds, func(t trait) bool { return t.kind == k })]
}

// claims returns the names of the parts that the fault needs exclusively.
func (s Schedule) claims(f Fault) (list []string) {
	switch f.Part {
	case Router:
		return []string{f.Router}
	case Link:
		return []string{f.Master + "-" + f.Router}
	case LAN, Stranger, Lists:
		return []string{string(f.Part)}
	case Member:
		return []string{string(Lists), f.Master + "/" + string(Speaker)}
	case Everyone:
		for _, m := range s.Masters {
			list = append(list, m+"/"+string(Speaker))
		}
		return list
	case Machine:
		for _, p := range []Part{APIServer, Registry, Speaker, Address, Gossip} {
			list = append(list, f.Master+"/"+string(p))
		}
		for _, r := range s.Routers {
			list = append(list, f.Master+"-"+r)
		}
		return list
	}
	return []string{f.Master + "/" + string(f.Part)}
}

func overlap[T cmp.Ordered](a, b []T) bool {
	return slices.ContainsFunc(a, func(x T) bool { return slices.Contains(b, x) })
}

// The times of herald.yaml.tmpl, of FRR and of the kernel.
const (
	checkInterval, checkTimeout = 200 * time.Millisecond, 300 * time.Millisecond
	rise, fall                  = 2, 2
	holdDown                    = 2 * time.Second
	holdTime                    = 3 * time.Second        // of BGP: a router keeps the routes of a silent neighbour for so long
	withdrawal                  = 100 * time.Millisecond // until the router's kernel route is gone
	lifetime                    = 11 * time.Second       // of an address that the speaker no longer refreshes: 10 s, and the kernel may be late
	start                       = 2 * time.Second        // from a speaker's start to its first check
	reconnect                   = 10 * time.Second       // of a session after any fault: three times the observed time
)

// Limits are the bounds of a run: how soon a sign goes after each kind of fault, and
// returns after it is mended.
type Limits struct {
	// Silence is how long a router keeps the routes of a silent neighbour.
	Silence time.Duration
	// BFD replaces Silence if a BFD session was up; zero means no BFD.
	BFD time.Duration
	// Starved is the shortest stall that may end sessions without a fault, because their
	// ends stall too. Zero: none may.
	Starved time.Duration
	// Slack is added to all bounds, for a busy machine.
	Slack time.Duration
}

// DefaultLimits returns the limits without BFD.
func DefaultLimits() Limits { return Limits{Silence: holdTime, Slack: time.Second} }

// detection returns how long a failure of an apiserver or registry may go undetected.
// ok is false for other kinds.
func detection(k Kind) (d time.Duration, ok bool) {
	switch k {
	case APIServerKilled, RegistryKilled:
		return 50 * time.Millisecond, true // a refused connection is proof, confirmed by a fast re-probe within 30 ms
	case APIServerErrors, RegistryErrors:
		return (1 + fall) * checkInterval, true
	case APIServerFrozen, RegistryFrozen, APIServerHangs, APIServerSlow:
		return checkInterval + fall*max(checkInterval, checkTimeout), true
	}
	return 0, false
}

// gone returns how long after the fault the sign may still be present, with no other
// fault; ok is false if it may stay.
func (l Limits) gone(i Incident, s Sign) (d time.Duration, ok bool) {
	if !i.touches(s) {
		return 0, false
	}
	route := s.Router != ""
	if d, ok := detection(i.Kind); ok {
		if route {
			d += withdrawal
		}
		return d, true
	}
	switch {
	case i.Kind == SpeakerStopped, i.Kind == SpeakerDrained, i.Kind == LinkDown, i.Kind == SpeakerKilled && route:
		return withdrawal, true
	case i.Kind == SpeakerKilled, i.Kind == SpeakerFrozen && !route:
		return lifetime, true
	case i.Kind == SpeakerFrozen, i.Kind == LinkCut, i.Kind == LinkCutOut, i.Kind == LinkCutIn, i.Kind == PowerCut && route:
		return l.Silence + withdrawal, true
	}
	return 0, false
}

// excused returns until when another fault may keep the sign present despite i.
func (l Limits) excused(i, other Incident, s Sign) time.Duration {
	if !other.touches(s) {
		return 0
	}
	own, _ := l.gone(i, s)
	route := s.Router != ""
	switch other.Kind {
	case SpeakerFrozen: // it continues where it stopped, unless its session timed out
		if route {
			return min(later(other.Mended, own), other.Began+l.Silence+withdrawal)
		}
		return min(later(other.Mended, own), other.Began+lifetime)
	case SpeakerKilled: // its successor knows nothing until its checks complete
		if !route {
			return min(later(other.Mended, start+own), other.Began+lifetime)
		}
	case LinkCut, LinkCutOut, LinkCutIn, PowerCut: // packets sent meanwhile arrive in order, or the session ends
		return other.Began + l.Silence + withdrawal
	case LinkDown, LinkFlaps:
		return later(other.Mended, l.Silence+withdrawal)
	case BGPKilled, RouterFrozen, RouterRebooted: // it keeps its routes, and may need a hold time to notice missed messages
		return later(other.Mended, l.Silence+withdrawal)
	}
	return 0
}

// back returns how long after the fault was mended the sign may still be absent; ok is
// false if it must not go at all.
func back(i Incident, s Sign) (d time.Duration, ok bool) {
	if !i.touches(s) {
		return 0, false
	}
	healthy := holdDown + checkTimeout + rise*checkInterval
	route := s.Router != ""
	if route {
		healthy += withdrawal
	}
	if _, ill := detection(i.Kind); ill {
		return healthy + start, true // the server has to start too
	}
	switch i.Kind {
	case Recoloured, BadFile, RegistryLogin:
		return 0, false
	case MEDRaised:
		return withdrawal, route
	case SpeakerDrained:
		return healthy, true
	case AddressDeleted, AddressesGone:
		return checkInterval, !route
	}
	if route {
		return start + healthy + reconnect, true
	}
	return start + healthy, true
}

// earliest returns how long the sign must stay absent after a server recovers: the
// checks have to pass Rise times. Zero if unknown, as for servers that had requests
// pending when they recovered.
func earliest(k Kind) time.Duration {
	switch k {
	case APIServerKilled, APIServerErrors, RegistryKilled, RegistryErrors:
		return (rise-1)*checkInterval - 20*time.Millisecond
	}
	return 0
}
