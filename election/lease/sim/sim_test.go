package sim

import (
	"cmp"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
)

var (
	schedules = flag.Int("schedules", 500, "simulate that many random schedules")
	seed      = flag.Uint64("seed", 0, "simulate the schedule of this seed only, and print all that happens")
)

// TestSchedules runs the machine with models of its surroundings through random schedules of faults. It checks that no
// two nodes ever answer at once, and that a node answers when one can.
func TestSchedules(t *testing.T) { runSchedules(t, variant{}, *schedules) }

// TestSchedulesWithoutQuorum does the same for sites of two without a quorum: there may be two holders, but not for
// long once they reach each other.
func TestSchedulesWithoutQuorum(t *testing.T) {
	runSchedules(t, variant{quorum: electorate.None}, *schedules/10)
}

// TestSchedulesOfOpenElectorates does the same for open electorates: members also lose their disks.
func TestSchedulesOfOpenElectorates(t *testing.T) {
	runSchedules(t, variant{open: true}, *schedules/2)
}

// TestSchedulesOfOtherLeases does the same while leases become up to ten times shorter and five times longer, in any
// order, and taken back halfway. How soon there is a holder is not checked.
func TestSchedulesOfOtherLeases(t *testing.T) {
	runSchedules(t, variant{wide: true}, *schedules/5)
	runSchedules(t, variant{wide: true, open: true}, *schedules/10)
}

// timely lists the rules about how soon something happens.
var timely = []string{"no holder", "no change", "preempt", "moved", "takeover"}

// runSchedules runs n schedules, or prints that of the seed.
func runSchedules(t *testing.T, v variant, n int) {
	if *seed > 0 {
		w := simulate(*seed, v, nil, &trace{})
		t.Log("\n" + strings.Join(w.trace.lines, "\n"))
		if w.broken != nil {
			t.Errorf("seed %d: %v", *seed, w.broken)
		}
		return
	}
	began := time.Now()
	all, failed := simulateMany(n, v)
	if v.wide {
		failed = slices.DeleteFunc(failed, func(w *world) bool { return slices.Contains(timely, w.broken.rule) })
	}
	t.Logf("%d schedules in %v: %v", n, time.Since(began).Round(time.Millisecond), all)
	report(t, failed)
}

// TestFindsBreaks removes one safety rule at a time: the checker must detect that.
func TestFindsBreaks(t *testing.T) {
	for _, test := range []struct {
		name    string
		variant variant
		shows   string
	}{
		{"no quorum", variant{noQuorum: true}, "two answer"},
		{"no abstaining", variant{noAbstain: true}, "two answer"},
		{"no fence", variant{noFence: true}, "two answer"},
		{"no arming", variant{noArming: true}, "two answer"},
		{"acts before its state is on disk", variant{noStoring: true}, "two records"},
		{"early release", variant{earlyRelease: true}, "two answer"},
		{"suspended members do not notice", variant{sleepwalks: true}, "two answer"},
		{"renews for a stuck speaker", variant{renewsStuck: true}, "takeover"},
		{"clocks off by a quarter", variant{extraDrift: 150_000}, "two hold"},
		{"clusters without majority believed", variant{open: true, births: true, heard: true}, "no holder"},
		{"clusters with majority not believed", variant{open: true, births: true, deaf: true}, "two answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for s := range uint64(*schedules) {
				if w := simulate(s+1, test.variant, nil, nil); w.broken != nil && w.broken.rule == test.shows {
					t.Logf("seed %d: %v", w.seed, w.broken)
					return
				}
			}
			t.Errorf("not found in %d schedules", *schedules)
		})
	}
}

// TestDeterministic runs one schedule twice: a seed must reproduce its result.
func TestDeterministic(t *testing.T) {
	for s := uint64(1); s <= 5; s++ {
		first, second := simulate(s, variant{}, nil, &trace{}).trace.lines, simulate(s, variant{}, nil, &trace{}).trace.lines
		for i := range min(len(first), len(second)) {
			if first[i] != second[i] {
				t.Fatalf("seed %d, line %d:\n%s\n%s", s, i, first[i], second[i])
			}
		}
		if len(first) != len(second) {
			t.Fatalf("seed %d: %d and %d lines", s, len(first), len(second))
		}
	}
}

// simulate runs the schedule of a seed, except the faults in skip.
func simulate(seed uint64, v variant, skip map[int]bool, tr *trace) *world {
	w := newWorld(seed, v, tr)
	w.log("", "%d voters, %d workers, lease %v, %d VIPs, delay %v to %v, latency %v", w.set.voters, w.set.workers, w.set.lease, len(w.set.vips),
		w.set.delay, w.set.delay+w.set.jitter, w.set.latency)
	w.admin.install(w)
	w.plan(skip)
	w.calmAt = w.now + w.set.chaos
	w.run(w.calmAt)
	if w.broken != nil {
		return w
	}
	w.soothe()
	if v.births {
		w.converge()
		return w
	}
	w.settle()
	w.bystander(w.rng)
	w.vanish(w.rng)
	w.yield()
	return w
}

// simulateMany runs the schedules of the first n seeds on all cores, and returns their figures and the broken worlds,
// by seed.
func simulateMany(n int, v variant) (all figures, failed []*world) {
	var (
		next  atomic.Uint64
		mu    sync.Mutex
		group sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for s := next.Add(1); s <= uint64(n); s = next.Add(1) {
				w := simulate(s, v, nil, nil)
				mu.Lock()
				all.add(w.figures)
				if w.broken != nil {
					failed = append(failed, w)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.SortFunc(failed, func(a, b *world) int { return cmp.Compare(a.seed, b.seed) })
	return all, failed
}

// report lists failed schedules and explains the first of each kind.
func report(t *testing.T, failed []*world) {
	explained := map[string]bool{}
	for _, w := range failed {
		t.Errorf("seed %d: %v", w.seed, w.broken)
		if !explained[w.broken.rule] {
			explained[w.broken.rule] = true
			t.Log(explain(w))
		}
	}
}

// explain reruns a failed schedule without irrelevant faults, and returns its last events.
func explain(failed *world) string {
	skip := map[int]bool{}
	for i := range failed.set.faults {
		skip[i] = true
		if w := simulate(failed.seed, failed.variant, skip, nil); w.broken == nil || w.broken.rule != failed.broken.rule {
			delete(skip, i)
		}
	}
	w := simulate(failed.seed, failed.variant, skip, &trace{})
	at, _ := slices.BinarySearch(w.trace.at, w.broken.at+1)
	lines := w.trace.lines[max(0, at-100):min(len(w.trace.lines), at+10)]
	return fmt.Sprintf("to see all of it, run with -seed %d; without %d of %d faults:\n%v\n%s",
		failed.seed, len(skip), failed.set.faults, w.broken, strings.Join(lines, "\n"))
}
