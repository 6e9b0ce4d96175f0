package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func schedule(seed uint64) Schedule {
	return newSchedule(Options{Seed: seed, Storm: 40 * time.Second})
}

func TestRoundKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		sched := rapid.SampledFrom([]Schedule{schedule(seed), newSchedule(Options{Flat: true, Seed: seed, Storm: 40 * time.Second}),
			newSchedule(Options{Flat: true, Join: true, Seed: seed, Storm: 40 * time.Second})}).Draw(t, "topology")
		n := rapid.IntRange(0, 100).Draw(t, "round")
		list := sched.Round(n)
		if diff := cmp.Diff(list, sched.Round(n)); diff != "" {
			t.Fatalf("the same seed makes other faults:\n%s", diff)
		}
		if len(list) == 0 {
			t.Fatal("nothing breaks")
		}
		for i, f := range list {
			trait := sched.traitOf(f.Kind)
			switch {
			case i > 0 && f.At < list[i-1].At:
				t.Errorf("%v comes before %v", f, list[i-1])
			case f.At+f.For > sched.Storm:
				t.Errorf("%v outlasts the storm", f)
			case f.For <= 0:
				t.Errorf("%v lasts %v", f, f.For)
			case trait.nature.includes(restarts) && f.Master != "" && f.Master == sched.Survivor:
				t.Errorf("%v ends the survivor", f)
			case (f.Master == "") != f.Part.common():
				t.Errorf("%v of %q names master %q", f, f.Part, f.Master)
			case (f.Router != "") != (f.Part == Router || f.Part == Link):
				t.Errorf("%v of %q names router %q", f, f.Part, f.Router)
			}
			for _, g := range list[:i] {
				if g.At+g.For <= f.At {
					continue
				}
				if overlap(sched.claims(g), sched.claims(f)) {
					t.Errorf("%v while %v", f, g)
				}
				if f.Part == Router && g.Part == Router {
					t.Errorf("%v while %v: no router is left", f, g)
				}
			}
		}
	})
}

// Over many rounds every kind occurs and faults overlap, more densely on the flat
// topology. On the bgp topology all masters are down occasionally, but rarely.
func TestRoundsReachEverything(t *testing.T) {
	for _, test := range []struct {
		flat, join    bool
		rounds, least int // faults in a round
	}{{false, false, 100, 1}, {true, false, 20, 35}, {true, true, 20, 35}} {
		sched := newSchedule(Options{Flat: test.flat, Join: test.join, Seed: 1, Storm: 40 * time.Second})
		seen := make(map[Kind]int)
		overlaps, beside, total, none := 0, 0, 0, 0
		for n := range test.rounds {
			list := sched.Round(n)
			for i, f := range list {
				seen[f.Kind]++
				total++
				if slices.ContainsFunc(list[:i], func(g Fault) bool { return g.At+g.For > f.At }) {
					beside++
				}
				down := map[string]bool{f.Master: sched.traitOf(f.Kind).nature.includes(fatal)}
				for _, g := range list[:i] {
					if g.At+g.For > f.At {
						overlaps++
						down[g.Master] = down[g.Master] || sched.traitOf(g.Kind).nature.includes(fatal)
					}
				}
				if sched.traitOf(f.Kind).nature.includes(fatal) && down["m1"] && down["m2"] && down["m3"] {
					none++
				}
			}
		}
		for _, trait := range sched.kinds {
			if seen[trait.kind] == 0 {
				t.Errorf("flat %t: %s never comes", test.flat, trait.kind)
			}
		}
		if total < test.rounds*test.least || overlaps < total || beside < total/2 {
			t.Errorf("flat %t: %d faults overlap %d others, %d of them begin while others are on", test.flat, total, overlaps, beside)
		}
		if !test.flat && (none == 0 || none > total/10) {
			t.Errorf("in %d faults of %d no master is left", none, total)
		}
	}
}

func TestPlannedChangesTakeTurns(t *testing.T) {
	sched := schedule(1)
	seen := make(map[Kind]bool)
	for n := range 30 {
		f := sched.Planned(n)
		seen[f.Kind] = true
		if sched.traitOf(f.Kind).nature.includes(restarts) && f.Master == "m1" {
			t.Errorf("%v ends the survivor", f)
		}
	}
	for _, trait := range sched.kinds {
		if trait.nature.includes(planned) != seen[trait.kind] {
			t.Errorf("%s made %t, planned %t", trait.kind, seen[trait.kind], trait.nature.includes(planned))
		}
	}
}
