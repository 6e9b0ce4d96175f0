package sim

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/testenv/fabric"
)

var (
	schedules = flag.Int("schedules", 20, "number of random schedules to simulate")
	seed      = flag.Uint64("seed", 0, "simulate only the schedule of this seed, and print its trace")
)

const (
	// pool is the maximum number of nodes; three vote at the start.
	pool = 5
	// forget is the number of leases after which the others forget a silent voter.
	forget = 6
	// recovery is the maximum time after the end of all faults until each VIP has one holder. It includes the backoff of a
	// node that could not answer.
	recovery = 30 * time.Second
)

// world is the state of one schedule.
type world struct {
	rng     *rand.Rand // only for the goroutine that draws the faults
	dir     string
	net     *fabric.Fabric
	nodes   []*node
	broken  string        // the disabled safeguard; empty: none
	open    bool          // an open cluster: nodes join and leave by themselves
	lease   time.Duration // the longest lease time
	delay   time.Duration // of the network
	latency time.Duration // maximum of a process at each touch
	level   slog.Level
	began   time.Time

	target  file                // the operator's latest file
	changed time.Time           // last change of target.members
	removed time.Time           // last removal of a vote
	cuts    [][2]netip.AddrPort // all cuts so far

	mu      sync.Mutex // guards the fields below; never held for long
	trace   []string
	failed  string      // the first broken rule; empty: none
	last    [vips]*node // the last node that answered for each VIP
	calm    bool
	over    bool
	figures *figures
}

// figures counts events of schedules.
type figures struct {
	starts, checks, handovers, frames int
	changes                           int           // of the electorate
	held                              int           // checks that found a holder
	recovery                          time.Duration // the longest
	faults                            map[string]int
}

func newFigures() *figures { return &figures{faults: make(map[string]int)} }

func (w *world) log(node, format string, args ...any) {
	at := fmt.Sprintf("%12.3fms %-3s ", float64(time.Since(w.began))/1e6, node)
	w.trace = append(w.trace, at+fmt.Sprintf(format, args...))
}

// fail records a broken rule. The caller holds the mutex.
func (w *world) fail(rule, format string, args ...any) {
	if w.failed == "" {
		w.failed = rule + ": " + fmt.Sprintf(format, args...)
		w.log("", "VIOLATION %s", w.failed)
	}
}

func (w *world) node(name string) *node { return w.nodes[int(name[1]-'1')] }

// vips is the number of VIPs. Each has two addresses; a file contains one of them.
const vips = 2

func addressesOf(v int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 9, byte(v), 1}), netip.AddrFrom4([4]byte{10, 9, byte(v), 2})}
}

func homes() (all []netip.AddrPort) {
	for i := range pool {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), 7946))
	}
	return all
}

// simulate runs the schedule of a seed.
func simulate(t *testing.T, seed uint64, broken string, level slog.Level, all *figures) *world {
	// Two processors that run timers of one bubble crash the race detector (https://go.dev/issue/78156).
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		figures: all, rng: rng, dir: t.TempDir(), net: fabric.New(), broken: broken, level: level, open: rng.IntN(3) == 0,
		lease: []time.Duration{600, 600, 1000}[rng.IntN(3)] * time.Millisecond,
		delay: []time.Duration{0, 1, 5}[rng.IntN(3)] * time.Millisecond, latency: []time.Duration{0, 50, 1000}[rng.IntN(3)] * time.Microsecond,
	}
	if broken == "no quorum" {
		w.open = false
	}
	synctest.Test(t, func(*testing.T) {
		w.run()
		w.locked(func() {
			w.over = true
			for _, n := range w.nodes {
				if n.proc != nil {
					n.proc.kill()
				}
			}
		})
		time.Sleep(time.Minute) // until memberlist's goroutines have ended
	})
	return w
}

func (w *world) run() {
	w.began = time.Now()
	w.weather(w.delay, 0, 0)
	w.target.lease = w.lease
	for i, at := range homes() {
		n := &node{w: w, index: i, name: fmt.Sprintf("m%d", 1+i), busy: make(chan struct{}, 1), home: at, installed: i < 3, sound: true, ends: make(map[netip.Addr]time.Time)}
		n.powerOff()
		w.nodes = append(w.nodes, n)
	}
	if !w.open {
		w.target.members = map[string]netip.AddrPort{"m1": homes()[0], "m2": homes()[1], "m3": homes()[2]}
	}
	for _, n := range w.nodes {
		n.file = w.target
		n.file.priority = w.rng.IntN(3)
		w.after(w.leases(0, 0.5), n.start)
	}
	for voters, tries := 0, 0; voters < 3 && tries < 200; tries++ {
		time.Sleep(100 * time.Millisecond)
		w.locked(func() { voters = len(w.latest().Members) })
	}
	time.Sleep(2 * w.lease)
	for range 8 + w.rng.IntN(24) {
		time.Sleep(w.leases(0, 1.2))
		f, n, broken := faults[min(w.rng.IntN(len(faults)+4), len(faults)-1)], w.victim(), false
		if w.locked(func() { w.log(n.name, "FAULT: %s", f.name); w.figures.faults[f.name]++; broken = w.failed != "" }); broken {
			return
		}
		f.strike(w, n)
	}
	time.Sleep(w.leases(1, 4))
	w.calmDown()
	w.settle()
}

// calmDown ends all faults.
func (w *world) calmDown() {
	w.locked(func() {
		w.log("", "CALM")
		w.calm = true
		for _, n := range w.nodes {
			if n.slow.After(time.Now()) {
				n.slow = time.Now()
			}
			if n.stuck.After(time.Now()) {
				n.stuck = time.Now()
			}
			n.installed = n.installed || n.disk().Committed.Number > 0 // a majority may need its vote
			if n.proc != nil {
				n.proc.countdown = 0
				n.proc.thaw()
			}
		}
	})
	w.cut(w.cuts, false)
	w.weather(w.delay, 0, 0)
	time.Sleep(6 * w.lease) // until the delayed effects of faults are over
	w.locked(func() {
		for _, n := range w.nodes {
			f := w.target
			if f.priority, f.pool = n.file.priority, n.file.pool; n.installed {
				go func() {
					n.reload(f)
					n.with(func(p *process) { p.speaker.Undrain() })
					n.setSound(true)
				}()
			}
		}
	})
}

// settle waits until each VIP has had one holder for 2 s.
func (w *world) settle() {
	began, broken := time.Now(), false
	for since := began; !broken && time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		w.locked(func() {
			if !w.settled() {
				since = time.Now()
			}
			took := since.Sub(began)
			if w.figures.recovery = max(w.figures.recovery, took); took > recovery {
				w.fail("no holder", "%v after the end of all faults, a VIP has no holder or two", took)
			}
			broken = w.failed != ""
		})
	}
}

// settled reports whether one node answers for each VIP's configured address and none for its other address. The caller
// holds the mutex.
func (w *world) settled() bool {
	for v := range vips {
		current, other := addressesOf(v)[w.target.at[v]], addressesOf(v)[1-w.target.at[v]]
		if len(w.answering(current)) != 1 || len(w.answering(other)) != 0 {
			return false
		}
	}
	return true
}

func TestSchedules(t *testing.T) {
	if *seed > 0 {
		w := simulate(t, *seed, "", slog.LevelInfo, newFigures())
		t.Log("\n" + strings.Join(w.trace, "\n"))
		if w.failed != "" {
			t.Errorf("seed %d: %s", *seed, w.failed)
		}
		return
	}
	began, all, failures := time.Now(), newFigures(), 0
	for s := uint64(1); s <= uint64(*schedules) && failures < 3; s++ {
		w := simulate(t, s, "", slog.LevelError+1, all)
		if w.failed != "" {
			failures++
			t.Errorf("seed %d: %s\n%s", s, w.failed, strings.Join(w.trace, "\n"))
		}
	}
	if all.held == 0 || all.changes == 0 || len(all.faults) < len(faults) {
		t.Errorf("%d schedules cover too little: %+v", *schedules, *all)
	}
	t.Logf("%d schedules in %v: %+v", *schedules, time.Since(began).Round(time.Millisecond), *all)
}

// TestFindsBreaks disables one safeguard at a time. The checker must find the resulting fault.
func TestFindsBreaks(t *testing.T) {
	for broken, rules := range map[string]string{
		"no fence":                "beyond its lease, two answer",
		"no expiry":               "beyond its lease, two answer",
		"second lock never ends":  "beyond its lease, two answer",
		"steps down first":        "two answer",
		"announces without limit": "late announcement",
		"longer than granted":     "beyond its lease, two answer",
		"no quorum":               "two answer",
		"leases of names only":    "two answer",
	} {
		t.Run(broken, func(t *testing.T) {
			for s := range uint64(500) {
				w := simulate(t, s+1, broken, slog.LevelError+1, newFigures())
				if rule, _, failed := strings.Cut(w.failed, ":"); failed && strings.Contains(rules, rule) {
					t.Logf("seed %d: %s", s+1, w.failed)
					return
				}
			}
			t.Error("the checker finds no fault")
		})
	}
}
