package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// pool lists all nodes. The first three or five vote at the start. The last ones are workers, without a vote unless the
// admin gives them one.
var pool = []string{"m1", "m2", "m3", "m4", "m5", "m6", "m7", "w1", "w2", "w3"}

// firstWorker is the index of the first worker.
const firstWorker = 7

// setting holds the constants of a schedule.
type setting struct {
	voters        int
	workers       int
	lease         time.Duration
	vips          []string
	candidacies   [][]lease.Candidacy // by node, by VIP
	preempt       bool
	delay, jitter time.Duration   // of the network
	latency       time.Duration   // maximum time between two steps of the process
	arm, jiffy    time.Duration   // of the fence
	drift         int64           // maximum error of clocks in parts per million
	strike        float64         // probability of a fault at each step of the speaker
	chaos         time.Duration   // duration of the faults
	disks         []time.Duration // maximum time of a write, by node
	faults        int
	weather       weather // of the network during the chaos, except in storms
	restless      bool    // the admin changes members without pause
}

// variant describes how a test differs from a site with a majority. Most variants remove a rule that safety needs.
type variant struct {
	noQuorum     bool              // votes of reachable members suffice
	noAbstain    bool              // a restarted machine votes at once
	noFence      bool              // the kernel expires nothing
	noArming     bool              // openings need no arming
	noStoring    bool              // the machine acts before its state is on disk
	earlyRelease bool              // the lease is released a round trip before the fence closes
	renewsStuck  bool              // leases are renewed for a speaker that is stuck
	sleepwalks   bool              // suspended members do not notice
	extraDrift   int64             // excess error of clocks, in parts per million
	quorum       electorate.Quorum // None: a site of two
	open         bool              // the electorate is open
	births       bool              // clusters begin apart
	heard, deaf  bool              // messages always, or never, say that a majority is heard
	wide         bool              // leases become much shorter and longer
}

// watchesHolds reports whether the checker also checks leases. A test of the test must show two answering nodes, unless
// the fence's margins hide them.
func (v variant) watchesHolds() bool {
	return v == variant{quorum: v.quorum, open: v.open, births: v.births, wide: v.wide} || v.extraDrift > 0 || v.noStoring
}

func newSetting(rng *rand.Rand, v variant) setting {
	s := setting{
		voters:  3 + 2*rng.IntN(2),
		lease:   []time.Duration{200, 600, 600, 1000, 3000}[rng.IntN(5)] * time.Millisecond,
		preempt: rng.IntN(4) == 0,
		drift:   125_500 + v.extraDrift,
		strike:  []float64{0, 0.002, 0.01}[rng.IntN(3)],
		faults:  6 + rng.IntN(24),
		workers: rng.IntN(len(pool) - firstWorker + 1),
	}
	if v.quorum == electorate.None {
		s.voters, s.workers = 2, 0
	}
	if rng.IntN(2) == 0 {
		s.weather = badWeather(rng, 0.1)
	}
	s.restless = rng.IntN(4) == 0 || v.noStoring
	s.delay = between(rng, 50*time.Microsecond, s.lease/400)
	s.jitter = between(rng, 0, s.lease/100)
	s.latency = between(rng, 20*time.Microsecond, s.lease/400)
	s.arm, s.jiffy = 20*time.Millisecond, jiffy
	if rng.IntN(2) == 0 { // no slack, so that no margin hides a fault
		s.arm, s.jiffy = 2*s.latency, 0
	}
	s.chaos = between(rng, 6*s.lease, 16*s.lease)
	for v := range 1 + rng.IntN(2) {
		s.vips = append(s.vips, fmt.Sprintf("vip%d", v))
	}
	for range pool {
		var own []lease.Candidacy
		for _, vip := range s.vips {
			own = append(own, lease.Candidacy{Lease: vip, Priority: rng.IntN(3), Preempt: s.preempt})
		}
		s.candidacies = append(s.candidacies, own)
		s.disks = append(s.disks, []time.Duration{s.latency, s.lease / 4, 3 * s.lease}[rng.IntN(3)])
		if v.noStoring {
			s.disks[len(s.disks)-1] = 20 * s.lease
		}
	}
	return s
}

func vipOf(name string) int { return int(name[len(name)-1] - '0') }

// fault happens to a world. Its randomness comes from its own rng, so that omitting one fault does not change the
// others.
type fault struct {
	name   string
	weight int
	strike func(w *world, rng *rand.Rand)
}

var faults = []fault{
	{"crash", 3, func(w *world, rng *rand.Rand) { w.victim(rng).crash(); w.restart(rng) }},
	{"power loss", 2, func(w *world, rng *rand.Rand) { w.victim(rng).powerLoss(); w.restart(rng) }},
	{"restart of many", 2, restartMany},
	{"pause", 4, func(w *world, rng *rand.Rand) {
		if p := w.victim(rng).proc; p != nil {
			p.pause(between(rng, w.set.lease/10, 3*w.set.lease))
		}
	}},
	{"suspend", 3, func(w *world, rng *rand.Rand) {
		if p := w.victim(rng).proc; p != nil {
			p.suspend(between(rng, w.set.lease/10, 3*w.set.lease))
		}
	}},
	{"stuck speaker", 3, func(w *world, rng *rand.Rand) {
		if p := w.victim(rng).proc; p != nil {
			p.speaker.hang(min(between(rng, w.set.lease/10, 3*w.set.lease), w.calmAt-w.now))
		}
	}},
	{"cut", 3, func(w *world, rng *rand.Rand) {
		a, b := rng.IntN(len(pool)), rng.IntN(len(pool))
		w.cut(rng, func(src, dst int) bool { return src == a && dst == b })
	}},
	{"isolation", 4, func(w *world, rng *rand.Rand) {
		i, in, out := w.victim(rng).index, rng.IntN(3) > 0, rng.IntN(3) > 0
		w.cut(rng, func(src, dst int) bool { return in && dst == i || out && src == i })
	}},
	{"partition", 4, func(w *world, rng *rand.Rand) {
		side, oneWay := rng.IntN(1<<len(pool)), rng.IntN(4) == 0
		w.cut(rng, func(src, dst int) bool {
			a, b := side>>src&1, side>>dst&1
			return a != b && (!oneWay || a < b)
		})
	}},
	{"storm", 3, storm},
	{"failing check", 4, func(w *world, rng *rand.Rand) {
		n, v := w.victim(rng), rng.IntN(len(w.set.vips))
		n.judge(v, false)
		w.after(between(rng, 0, 3*w.set.lease), func() { n.judge(v, true) })
	}},
	{"stop", 2, stop},
	{"priority", 2, func(w *world, rng *rand.Rand) {
		n, v := w.victim(rng), rng.IntN(len(w.set.vips))
		n.want[v].Priority = rng.IntN(3)
		if p := n.proc; p != nil {
			p.do(func() { p.speaker.vips[v].stale = true; p.speaker.work() })
		}
	}},
	{"replay", 4, func(w *world, rng *rand.Rand) {
		for range 1 + rng.IntN(40) {
			w.after(between(rng, 0, w.set.lease/2), func() { w.replay(rng) })
		}
	}},
	{"no gossip", 2, func(w *world, rng *rand.Rand) {
		w.net.silent++
		w.after(between(rng, w.set.lease, 6*w.set.lease), func() {
			if !w.calm { // the calm has a network of its own
				w.net.silent--
			}
		})
	}},
	{"change and restart", 3, func(w *world, rng *rand.Rand) {
		w.admin.change(w, rng)
		w.after(between(rng, 0, 2*w.set.lease), func() {
			if !w.calm {
				restartMany(w, rng)
			}
		})
	}},
	{"failing disk", 3, func(w *world, rng *rand.Rand) {
		n := w.victim(rng)
		n.disk.bad = true
		w.after(between(rng, 0, 6*w.set.lease), func() { n.disk.bad = false })
	}},
	{"change of members", 4, func(w *world, rng *rand.Rand) { w.admin.change(w, rng) }},
}

// plan schedules a world's faults, except those in skip.
func (w *world) plan(skip map[int]bool) {
	weights := 0
	for _, f := range faults {
		weights += f.weight
	}
	for i := range w.set.faults {
		rng := rand.New(rand.NewPCG(w.seed, uint64(i)+2))
		at, k, n := between(rng, 0, w.set.chaos), 0, rng.IntN(weights)
		for ; n >= faults[k].weight; k++ {
			n -= faults[k].weight
		}
		if skip[i] {
			continue
		}
		w.after(at, func() {
			if w.calm {
				return
			}
			w.log("", "FAULT %d: %s", i, faults[k].name)
			w.figures.faults[k]++
			faults[k].strike(w, rng)
		})
	}
}

// victim picks an installed node; with probability one half, the holder of a VIP.
func (w *world) victim(rng *rand.Rand) *node {
	installed := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return !n.installed })
	n := installed[rng.IntN(len(installed))]
	v, holder := rng.IntN(len(w.set.vips)), rng.IntN(2) == 0
	if i := w.check.holds[v].at(w.now); holder && i >= 0 && w.nodes[i].installed {
		return w.nodes[i]
	}
	return n
}

// restart starts all stopped processes after a while.
func (w *world) restart(rng *rand.Rand) {
	w.after(between(rng, 0, 3*w.set.lease), func() {
		for _, n := range w.nodes {
			n.start()
		}
	})
}

// restartMany restarts most processes, half of the time within a moment.
func restartMany(w *world, rng *rand.Rand) {
	longest := []time.Duration{w.set.lease / 100, w.set.lease / 4}[rng.IntN(2)]
	for _, n := range w.nodes {
		if rng.IntN(4) > 0 {
			n.crash()
			w.after(between(rng, 0, longest), n.start)
		}
	}
}

// cut severs the chosen directions for a while.
func (w *world) cut(rng *rand.Rand, chosen func(src, dst int) bool) {
	mend := w.net.sever(chosen)
	w.after(between(rng, w.set.lease/5, 4*w.set.lease), mend)
}

// storm makes the network as bad as possible for a while.
func storm(w *world, rng *rand.Rand) {
	w.net.weather = badWeather(rng, 1)
	w.after(between(rng, w.set.lease/2, 4*w.set.lease), func() {
		if !w.calm {
			w.net.weather = w.set.weather
		}
	})
}

func badWeather(rng *rand.Rand, much float64) weather {
	much *= 0.6
	return weather{
		loss: much * rng.Float64(), duplicate: much * rng.Float64(), slow: much * rng.Float64(), replay: much * rng.Float64() / 3,
	}
}

// judge sets the verdict of a node's checks on a VIP.
func (n *node) judge(v int, sound bool) {
	n.w.log(n.name, "checks of vip%d pass: %t", v, sound)
	n.unsound[v] = !sound
	if p := n.proc; p != nil {
		p.do(p.speaker.work)
	}
}

// stop ends a process as an upgrade does, and starts its successor.
func stop(w *world, rng *rand.Rand) {
	n := w.victim(rng)
	for v := range n.unsound {
		n.judge(v, false)
	}
	w.after(max(w.set.lease/10, 10*w.set.latency), func() {
		n.crash()
		w.after(between(rng, 0, w.set.lease), func() {
			clear(n.unsound)
			n.start()
		})
	})
}
