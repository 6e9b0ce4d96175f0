package soak

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Schedule says what breaks, when and for how long. It is a pure function of
// its fields: the same seed makes the same faults.
type Schedule struct {
	Seed uint64
	// Masters and Routers are the names of what there is to break.
	Masters, Routers []string
	// Survivor is the master whose speaker is never restarted, so that its
	// growth can be told.
	Survivor string
	// Storm is how long the faults of a round last.
	Storm time.Duration
}

const (
	// The mean time between the beginnings of two faults is drawn for each round:
	// where little overlaps there is little excuse, and much to judge.
	wild, calm = 800 * time.Millisecond, 3 * time.Second
	// rest is the least time between two faults of the same part.
	rest = 500 * time.Millisecond
	// brief is how often a fault is a short one.
	brief = 0.2
	// blackout is how often a fault may take the last master, too.
	blackout = 0.15
)

// Round returns the faults of round n in the order of their beginnings. They
// overlap, but never two of the same part, and never two routers' at once.
// Mostly at least one master is spared.
func (s Schedule) Round(n int) []Fault {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	pace := float64(wild) + rng.Float64()*float64(calm-wild)
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

// draw makes a fault at the time given that ends with the storm at the latest.
func (s Schedule) draw(rng *rand.Rand, at time.Duration) Fault {
	t := s.pick(rng)
	f := Fault{Kind: t.kind, Part: t.part, At: at}
	// Faults too short to be noticed find other bugs than long ones.
	most := t.most
	if rng.Float64() < brief {
		most = min(most, t.least+time.Second)
	}
	f.For = min(t.least+time.Duration(rng.Float64()*float64(most-t.least)), s.Storm-at)
	if t.part != Router {
		f.Master = s.Masters[rng.IntN(len(s.Masters))]
		if t.restarts {
			others := slices.DeleteFunc(slices.Clone(s.Masters), func(m string) bool { return m == s.Survivor })
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
	all := traits()
	total := 0
	for _, t := range all {
		total += t.weight
	}
	x := rng.IntN(total)
	for _, t := range all {
		if x -= t.weight; x < 0 {
			return t
		}
	}
	panic("soak: the weights do not add up")
}

// fits reports whether a fault may be made beside those that begin before it.
func (s Schedule) fits(rng *rand.Rand, list []Fault, f Fault) bool {
	down := make(map[string]bool)
	if fatal(f.Kind) {
		down[f.Master] = true
	}
	for _, g := range list {
		if g.At+g.For+rest <= f.At {
			continue
		}
		if overlap(g.claims(s.Routers), f.claims(s.Routers)) || g.Part == Router && f.Part == Router {
			return false
		}
		if fatal(g.Kind) {
			down[g.Master] = true
		}
	}
	return len(down) < len(s.Masters) || rng.Float64() < blackout
}

// Planned returns the planned change that is made in the quiet after round n,
// one kind after the other.
func (s Schedule) Planned(n int) Fault {
	kinds := slices.DeleteFunc(traits(), func(t trait) bool { return !t.planned })
	t := kinds[n%len(kinds)]
	masters := slices.DeleteFunc(slices.Clone(s.Masters), func(m string) bool { return t.restarts && m == s.Survivor })
	return Fault{Kind: t.kind, Part: t.part, Master: masters[n%len(masters)], For: 3 * time.Second}
}

func traitOf(k Kind) trait {
	list := traits()
	return list[slices.IndexFunc(list, func(t trait) bool { return t.kind == k })]
}

func fatal(k Kind) bool { return traitOf(k).fatal }

func overlap[T cmp.Ordered](a, b []T) bool {
	return slices.ContainsFunc(a, func(x T) bool { return slices.Contains(b, x) })
}
