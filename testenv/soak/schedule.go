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
	// kinds are what there is to break.
	kinds []trait
	// wild and calm bound the mean time between the beginnings of two faults,
	// which is drawn for each round: where little overlaps there is little
	// excuse, and much to judge.
	wild, calm time.Duration
}

const (
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
	if !t.part.common() {
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
	total := 0
	for _, t := range s.kinds {
		total += t.weight
	}
	x := rng.IntN(total)
	for _, t := range s.kinds {
		if x -= t.weight; x < 0 {
			return t
		}
	}
	panic("soak: the weights do not add up")
}

// fits reports whether a fault may be made beside those that begin before it.
func (s Schedule) fits(rng *rand.Rand, list []Fault, f Fault) bool {
	down := make(map[string]bool)
	if s.fatal(f.Kind) {
		down[f.Master] = true
	}
	for _, g := range list {
		if g.At+g.For+rest <= f.At {
			continue
		}
		if overlap(s.claims(g), s.claims(f)) || g.Part == Router && f.Part == Router {
			return false
		}
		if s.fatal(g.Kind) {
			down[g.Master] = true
		}
	}
	return len(down) < len(s.Masters) || rng.Float64() < blackout
}

// Planned returns the planned change that is made in the quiet after round n,
// one kind after the other.
func (s Schedule) Planned(n int) Fault {
	kinds := slices.DeleteFunc(slices.Clone(s.kinds), func(t trait) bool { return !t.planned })
	t := kinds[n%len(kinds)]
	masters := slices.DeleteFunc(slices.Clone(s.Masters), func(m string) bool { return t.restarts && m == s.Survivor })
	return Fault{Kind: t.kind, Part: t.part, Master: masters[n%len(masters)], For: 3 * time.Second}
}

func (s Schedule) traitOf(k Kind) trait {
	return s.kinds[slices.IndexFunc(s.kinds, func(t trait) bool { return t.kind == k })]
}

func (s Schedule) fatal(k Kind) bool { return s.traitOf(k).fatal }

// claims are the parts that the fault has to itself, by name.
func (s Schedule) claims(f Fault) []string {
	of := func(master string) (list []string) {
		for _, t := range s.kinds {
			if p := t.part; !p.common() && p != Link && p != Machine && !slices.Contains(list, master+"/"+string(p)) {
				list = append(list, master+"/"+string(p))
			}
		}
		return list
	}
	switch f.Part {
	case Router:
		return []string{f.Router}
	case Link:
		return []string{f.Master + "-" + f.Router}
	case Segment, Stranger:
		return []string{string(f.Part)}
	case Everyone:
		var list []string
		for _, m := range s.Masters {
			list = append(list, m+"/"+string(Speaker))
		}
		return list
	case Machine:
		list := of(f.Master)
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
