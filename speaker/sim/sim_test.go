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
	schedules = flag.Int("schedules", 20, "simulate that many random schedules")
	seed      = flag.Uint64("seed", 0, "simulate the schedule of this seed only, and print all that happens")
)

const (
	// pool is how many nodes there may be, of which three vote at the start.
	pool = 5
	// forget is after how many leases a silent voter is forgotten.
	forget = 6
	// recovery is within what a VIP has one holder once all has been put right: a node leaves one that it could not
	// answer for to others for a while.
	recovery = 30 * time.Second
)

// A world is one schedule.
type world struct {
	rng     *rand.Rand // of the goroutine that draws the faults
	dir     string
	net     *fabric.Fabric
	nodes   []*node
	broken  string        // what was taken away; empty: nothing
	open    bool          // members come and go by themselves
	lease   time.Duration // the longest
	delay   time.Duration // of the network
	latency time.Duration // of a process, at each touch
	level   slog.Level
	began   time.Time

	target  file                // what is to be in all files
	changed time.Time           // when target.members last was
	removed time.Time           // when a vote was last taken
	cuts    [][2]netip.AddrPort // all that there have been

	mu      sync.Mutex // guards what follows, and never held for long
	trace   []string
	failed  string      // the rule that was broken first
	last    [vips]*node // who answered for each
	calm    bool
	over    bool
	figures *figures
}

// figures are what schedules came to.
type figures struct {
	starts, checks, handovers, frames int
	changes                           int           // of who votes
	held                              int           // VIPs that had a holder when they were checked
	recovery                          time.Duration // the longest
	faults                            map[string]int
}

func newFigures() *figures { return &figures{faults: make(map[string]int)} }

func (w *world) log(node, format string, args ...any) {
	at := fmt.Sprintf("%12.3fms %-3s ", float64(time.Since(w.began))/1e6, node)
	w.trace = append(w.trace, at+fmt.Sprintf(format, args...))
}

// fail notes that a rule is broken. The mutex is held.
func (w *world) fail(rule, format string, args ...any) {
	if w.failed == "" {
		w.failed = rule + ": " + fmt.Sprintf(format, args...)
		w.log("", "VIOLATION %s", w.failed)
	}
}

func (w *world) node(name string) *node { return w.nodes[int(name[1]-'1')] }

// vips is how many VIPs there are. Each has two addresses, of which one is in the files.
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
		time.Sleep(time.Minute) // for memberlist to end what it does not wait for
	})
	return w
}

func (w *world) run() {
	w.began = time.Now()
	w.weather(w.delay, 0, 0)
	w.target.lease = w.lease
	for i, at := range homes() {
		n := &node{w: w, index: i, name: fmt.Sprintf("m%d", 1+i), busy: make(chan struct{}, 1), home: at, installed: i < 3, sound: true}
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
	w.soothe()
	w.settle()
}

// soothe ends all faults.
func (w *world) soothe() {
	w.locked(func() {
		w.log("", "CALM")
		w.calm = true
		for _, n := range w.nodes {
			if n.slow.After(time.Now()) {
				n.slow = time.Now()
			}
			n.installed = n.installed || n.disk().Committed.Number > 0 // its vote may be needed once more
			if n.proc != nil {
				n.proc.countdown = 0
				n.proc.thaw()
			}
		}
	})
	w.cut(w.cuts, false)
	w.weather(w.delay, 0, 0)
	time.Sleep(6 * w.lease) // for what was to come of the faults to come
	w.locked(func() {
		for _, n := range w.nodes {
			f := w.target
			if f.priority = n.file.priority; n.installed {
				go func() {
					n.reload(f)
					n.with(func(p *process) { p.speaker.Undrain() })
					n.judge(true)
				}()
			}
		}
	})
}

// settle waits until each VIP has one holder, and looks whether it keeps it.
func (w *world) settle() {
	began, broken := time.Now(), false
	for since := began; !broken && time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		w.locked(func() {
			if !w.settled() {
				since = time.Now()
			}
			took := since.Sub(began)
			if w.figures.recovery = max(w.figures.recovery, took); took > recovery {
				w.fail("no holder", "not one node answers for each VIP %v after the calm", took)
			}
			broken = w.failed != ""
		})
	}
}

// settled is whether one node answers for each VIP where the files say, and none for where it was. The mutex is held.
func (w *world) settled() bool {
	for v := range vips {
		here, there := addressesOf(v)[w.target.at[v]], addressesOf(v)[1-w.target.at[v]]
		if len(w.answering(here)) != 1 || len(w.answering(there)) != 0 {
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
		t.Errorf("%d schedules show nothing: %+v", *schedules, *all)
	}
	t.Logf("%d schedules in %v: %+v", *schedules, time.Since(began).Round(time.Millisecond), *all)
}

// TestFindsBreaks takes away, one at a time, what keeps two nodes from answering at once: the checker must see it.
func TestFindsBreaks(t *testing.T) {
	for broken, shows := range map[string]string{
		"no fence":                "beyond its lease, two answer",
		"no expiry":               "beyond its lease, two answer",
		"second lock never ends":  "beyond its lease, two answer",
		"resigns first":           "two answer",
		"announces without limit": "late announcement",
		"longer than granted":     "beyond its lease, two answer",
		"no quorum":               "two answer",
	} {
		t.Run(broken, func(t *testing.T) {
			for s := range uint64(500) {
				w := simulate(t, s+1, broken, slog.LevelError+1, newFigures())
				if rule, _, failed := strings.Cut(w.failed, ":"); failed && strings.Contains(shows, rule) {
					t.Logf("seed %d: %s", s+1, w.failed)
					return
				}
			}
			t.Error("not found")
		})
	}
}
