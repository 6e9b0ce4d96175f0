package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/lease"
)

// instant is true time since the schedule began. Only the simulator knows it: a node sees its own clock.
type instant = time.Duration

// never is after the end of any schedule.
const never instant = 1 << 62

// world is one schedule: nodes, their network, the faults and the checker. Everything in it is an event on the agenda
// and follows from the seed alone.
type world struct {
	seed     uint64
	rng      *rand.Rand
	now      instant
	agenda   agenda
	set      setting
	variant  variant
	nodes    []*node
	admin    admin
	net      network
	check    checker
	figures  figures
	trace    *trace        // nil: none
	broken   *violation    // ends the schedule
	proposed []lease.State // sent values, each with the electorate that it follows
	calmAt   instant       // the end of the chaos
	calm     bool          // the chaos is over: no more random faults
	settled  bool          // the calm has taken effect
}

// newWorld returns the initial world of a seed.
func newWorld(seed uint64, v variant, tr *trace) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), variant: v, trace: tr}
	w.set = newSetting(w.rng, v)
	w.net = newNetwork(len(pool))
	w.net.weather = w.set.weather
	w.check = newChecker(len(w.set.vips), len(pool))
	for i, name := range pool {
		w.nodes = append(w.nodes, &node{
			w: w, index: i, name: name, clock: newClock(w.rng, w.set.drift), want: slices.Clone(w.set.candidacies[i]),
			under: make([]uint64, len(w.set.vips)), unsound: make([]bool, len(w.set.vips)), disk: disk{delay: w.set.disks[i]},
		})
	}
	return w
}

// after schedules do for d from now.
func (w *world) after(d time.Duration, do func()) { w.agenda.add(w.now+max(d, 0), do) }

// maxEvents limits a schedule: more events mean that machines keep each other or themselves busy endlessly.
const maxEvents = 400_000

// run lets time pass until the given instant or a violation.
func (w *world) run(until instant) {
	for w.broken == nil && len(w.agenda.events) > 0 && w.agenda.events[0].at <= until {
		e := w.agenda.next()
		w.now = e.at
		e.do()
		if w.figures.events++; w.figures.events > maxEvents {
			w.fail("endless", "%d events: the machines keep each other busy endlessly", maxEvents)
		}
	}
	w.now = max(w.now, until)
}

// fail ends the schedule with a violated invariant.
func (w *world) fail(rule, format string, args ...any) {
	if w.broken == nil {
		w.broken = &violation{at: w.now, rule: rule, text: fmt.Sprintf(format, args...)}
		w.log("", "VIOLATION %s", w.broken)
	}
}

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between draws a duration uniformly.
func (w *world) between(low, high time.Duration) time.Duration { return between(w.rng, low, high) }

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}

// violation is a violated invariant.
type violation struct {
	at   instant
	rule string // short name
	text string
}

func (v *violation) String() string { return fmt.Sprintf("%s: %s", v.rule, v.text) }

// agenda is a heap of events, the earliest first. Events of one instant keep their order of addition.
type agenda struct {
	events []event
	count  uint64
}

type event struct {
	at    instant
	order uint64
	do    func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

func (a *agenda) add(at instant, do func()) {
	a.count++
	a.events = append(a.events, event{at, a.count, do})
	for i := len(a.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.events[i].before(a.events[parent]) {
			return
		}
		a.events[i], a.events[parent] = a.events[parent], a.events[i]
		i = parent
	}
}

func (a *agenda) next() event {
	first, last := a.events[0], len(a.events)-1
	a.events[0] = a.events[last]
	a.events[last] = event{}
	a.events = a.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if a.events[child].before(a.events[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		a.events[i], a.events[least] = a.events[least], a.events[i]
		i = least
	}
}

// clock runs fast or slow at a constant rate, with an arbitrary origin. A node's processes and its kernel share one.
type clock struct {
	start time.Time
	ppm   int64 // parts per million too fast
}

// newClock returns a clock with an error of at most drift parts per million; half of them have exactly that, because
// leases break at the extremes.
func newClock(rng *rand.Rand, drift int64) clock {
	ppm := rng.Int64N(2*drift+1) - drift
	switch rng.IntN(4) {
	case 0:
		ppm = drift
	case 1:
		ppm = -drift
	}
	return clock{start: time.Unix(1_700_000_000+rng.Int64N(1_000_000), rng.Int64N(1e9)), ppm: ppm}
}

// read returns the clock's time at an instant.
func (c clock) read(t instant) time.Time {
	return c.start.Add(t + time.Duration(int64(t)/1000*c.ppm/1000))
}

// when returns the first instant, up to a microsecond late, at which the clock shows at least that time.
func (c clock) when(shown time.Time) instant { return c.span(shown.Sub(c.start)) + time.Microsecond }

// span returns the true length of a duration by this clock.
func (c clock) span(d time.Duration) time.Duration {
	return time.Duration(float64(d) / (1 + float64(c.ppm)/1e6))
}
