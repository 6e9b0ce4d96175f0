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
