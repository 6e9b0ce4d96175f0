package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
)

// A fault befalls a world, on the goroutine that draws. What is to be drawn for later is drawn at once.
type fault struct {
	name   string
	strike func(w *world, n *node)
}

var faults = []fault{
	{"kill", func(w *world, n *node) {
		n.strike(1+w.rng.IntN(40), (*process).kill)
		w.after(w.leases(0, 5), n.start)
	}},
	{"power loss", func(w *world, n *node) { w.locked(n.powerOff); w.after(w.leases(0, 4), n.start) }},
	{"restart of many", func(w *world, _ *node) {
		for _, n := range w.nodes {
			if w.rng.IntN(4) > 0 {
				n.strike(1, (*process).kill)
				w.after(w.leases(0, 0.5), n.start)
			}
		}
	}},
	{"stop", func(w *world, n *node) { go n.stop(); w.after(w.leases(0, 6), n.start) }},
	{"cut", func(w *world, n *node) { // of one node or between two sides, also one way only
		side, in, out := w.rng.IntN(1<<pool), w.rng.IntN(3) > 0, w.rng.IntN(3) > 0
		if w.rng.IntN(2) == 0 {
			side = 1 << n.index
		}
		var cut [][2]netip.AddrPort
		w.locked(func() {
			for _, a := range w.nodes {
				for _, b := range w.nodes {
					if from, to := side>>a.index&1, side>>b.index&1; out && from > to || in && from < to {
						cut = append(cut, [2]netip.AddrPort{a.home, b.home})
					}
				}
			}
		})
		w.cuts = append(w.cuts, cut...)
		w.cut(cut, true)
		w.after(w.leases(0.3, 6), func() { w.cut(cut, false) })
	}},
	{"storm", func(w *world, _ *node) {
		w.weather(w.leases(0, 0.3), 0.5*w.rng.Float64(), 0.3*w.rng.Float64())
		w.after(w.leases(1, 4), func() { w.weather(w.delay, 0, 0) })
	}},
	{"slow kernel", func(w *world, n *node) {
		w.locked(func() { n.slow = time.Now().Add(w.leases(0.5, 4)) })
	}},
	{"failing check", func(w *world, n *node) {
		w.after(0, func() { n.judge(false) })
		w.after(w.leases(0, 4), func() { n.judge(true) })
	}},
	{"overload", func(w *world, _ *node) {
		for _, n := range w.nodes {
			w.after(w.leases(0, 1), func() { n.speak(false, true) })
			w.after(w.leases(2, 6), func() { n.judge(true) })
		}
	}},
	{"drain", func(w *world, n *node) {
		w.after(0, func() { n.with(func(p *process) { p.speaker.Drain("for a while", 0) }) })
		w.after(w.leases(0, 6), func() { n.with(func(p *process) { p.speaker.Undrain() }) })
	}},
	{"flush of nftables", func(w *world, n *node) {
		w.locked(func() { n.sets, n.flushed, n.altered = nil, time.Now(), n.altered+1 })
	}},
	{"address taken away", func(w *world, n *node) {
		w.locked(func() { n.bound, n.taken = map[netip.Addr]time.Time{}, time.Now() })
	}},
	{"other file", func(w *world, _ *node) {
		switch f := &w.target; w.rng.IntN(3) {
		case 0:
			f.at[w.rng.IntN(vips)] ^= 1
		case 1:
			f.linger, f.preempt = w.leases(0, 1)*time.Duration(w.rng.IntN(2)), w.rng.IntN(2) == 0
		case 2:
			f.lease = w.lease - w.leases(0, 0.4).Truncate(time.Millisecond)
		}
		w.locked(w.rollOut)
	}},
	{"other members", func(w *world, n *node) {
		change := w.changeList
		if w.open {
			change = w.changeNodes
		}
		w.locked(func() { change(n) })
	}},
	{"freeze", func(w *world, n *node) { // the last, which comes most often
		d, in := w.leases(0.1, 4), 1+w.rng.IntN(40)
		n.strike(in, func(p *process) { p.freeze(d) })
	}},
}

// strike has something happen to a process when it has met the outside so many times more.
func (n *node) strike(in int, what func(p *process)) {
	n.w.locked(func() {
		if p := n.proc; p != nil {
			p.countdown, p.then = in, func() { what(p) }
		}
	})
}

// changeList adds or removes a member, or moves one, also where that takes back what is under way.
func (w *world) changeList(n *node) {
	members := maps.Clone(w.target.members)
	if w.rng.IntN(3) == 0 {
		n = w.nodes[w.rng.IntN(pool)]
	}
	switch _, is := members[n.name]; {
	case is && w.rng.IntN(3) == 0 && len(members) > 2 && w.agreed():
		members[n.name] = w.elsewhere(n)
	case is:
		delete(members, n.name)
	default:
		members[n.name] = n.home
	}
	fresh := 0
	for name := range members {
		if w.node(name).disk().Committed.Number == 0 {
			fresh++
		}
	}
	if len(members) < 2 || len(members) > pool || fresh > (len(members)-1)/2 {
		return
	}
	w.figures.changes++
	w.target.members, w.changed = members, time.Now()
	w.rollOut()
	for _, n := range w.nodes {
		if _, is := members[n.name]; !is && w.rng.IntN(3) == 0 {
			w.after(w.leases(0, 6), func() {
				w.locked(func() {
					if maps.Equal(members, w.target.members) && !w.calm {
						n.powerOff()
						n.installed = false
					}
				})
			})
		}
	}
}

// agreed is whether nothing is under way any more: a voter that moves while others are removed may be one too many.
func (w *world) agreed() bool {
	var members []string
	for name, at := range w.target.members {
		members = append(members, electorate.Member(name, at, ""))
		if !maps.Equal(w.node(name).file.members, w.target.members) {
			return false
		}
	}
	slices.Sort(members)
	return slices.Equal(members, w.latest().Members) && time.Since(w.changed) > 4*w.lease
}

// rollOut brings the file to the nodes, in any order, to some late or never.
func (w *world) rollOut() {
	for _, n := range w.nodes {
		f := w.target
		f.priority = w.rng.IntN(3)
		_, is := f.members[n.name]
		if is || n.installed && w.rng.IntN(2) == 0 {
			w.after(w.leases(0, 3), func() { n.reload(f) })
		}
	}
}

// reload puts a file in force, by a restart if that takes one.
func (n *node) reload(f file) {
	n.busy <- struct{}{}
	at, listed := f.members[n.name]
	n.w.locked(func() {
		n.w.log(n.name, "is to have %v, lease %v, VIPs at %v, priority %d", f.members, f.lease, f.at, f.priority)
		n.file, n.installed = f, true
		if listed && at != n.home {
			if n.home = at; n.proc != nil {
				n.proc.kill()
			}
		}
	})
	n.with(func(p *process) {
		if err := p.apply(); err != nil {
			_, _ = fmt.Fprintf(p, "refuses its file: %v", err)
		}
	})
	<-n.busy
	n.start()
}

// powerOff ends process and kernel. The mutex is held.
func (n *node) powerOff() {
	if n.proc != nil {
		n.proc.kill()
	}
	n.kernel = kernel{bound: make(map[netip.Addr]time.Time), altered: n.altered + 1}
}

// changeNodes installs a node, has the vote of one taken, switches one off, moves one, or has it lose its disk. The mutex is held.
func (w *world) changeNodes(n *node) {
	switch kind := w.rng.IntN(6); {
	case kind == 0:
		n = w.nodes[w.rng.IntN(pool)]
		n.installed = true
	case kind == 1:
		w.removed = time.Now()
		for _, o := range w.nodes {
			go o.with(func(p *process) {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 2*w.lease)
					defer cancel()
					_ = p.election.Remove(ctx, n.name)
				}()
			})
		}
	case !w.spared(n), time.Since(w.removed) < 3*w.lease:
		return
	case kind == 2:
		n.powerOff()
		n.installed = false
	case kind == 3:
		n.powerOff()
		n.home = w.elsewhere(n)
	default:
		n.powerOff()
		_ = os.Remove(n.state)
	}
	w.figures.changes++
	w.log(n.name, "changes: installed %t, at %v", n.installed, n.home)
	w.after(w.leases(0, 3), n.start)
}

// disk is what a node remembers.
func (n *node) disk() (s struct {
	Identity string
	lease.State
}) {
	b, _ := os.ReadFile(n.state)
	_ = json.Unmarshal(b, &s)
	return s
}

// latest is the latest record that any node knows of.
func (w *world) latest() (r electorate.Committed) {
	for _, n := range w.nodes {
		if d := n.disk(); d.Committed.Number > r.Number {
			r = d.Committed
		}
	}
	return r
}

// spared is whether every electorate that may be in force has a majority without a node.
func (w *world) spared(without *node) bool {
	latest := w.latest()
	for _, n := range w.nodes {
		d := n.disk()
		for _, e := range []*electorate.Electorate{&d.Committed.Electorate, d.Value} {
			if e == nil || d.Committed.Number < latest.Number {
				continue
			}
			left := 0
			for _, member := range e.Members {
				o := w.node(electorate.Name(member))
				if o != without && o.installed && member == electorate.Member(o.name, o.home, o.disk().Identity) {
					left++
				}
			}
			if left < e.Majority() {
				return false
			}
		}
	}
	return latest.Number > 0
}

// elsewhere is an address where a node has not been lately.
func (w *world) elsewhere(n *node) netip.AddrPort {
	a := n.home.Addr().As4()
	a[2] = byte(1 + w.rng.IntN(250))
	return netip.AddrPortFrom(netip.AddrFrom4(a), n.home.Port())
}

func (w *world) cut(some [][2]netip.AddrPort, cut bool) {
	for _, c := range some {
		w.net.Cut(c[0], c[1], cut)
	}
}

func (w *world) weather(delay time.Duration, loss, twice float64) {
	w.net.Lock()
	defer w.net.Unlock()
	w.net.Delay, w.net.Loss, w.net.Twice = delay+time.Microsecond, loss, twice
}

// victim is a node that is installed, every other time one that answers for a VIP.
func (w *world) victim() (n *node) {
	w.locked(func() {
		all := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return !n.installed })
		n = all[w.rng.IntN(len(all))]
		if v := w.rng.IntN(2 * vips); v < vips && w.last[v] != nil && w.last[v].installed {
			n = w.last[v]
		}
	})
	return n
}

// locked does something under the mutex, which is held for that long.
func (w *world) locked(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

// leases draws a duration between so many leases.
func (w *world) leases(low, high float64) time.Duration {
	return time.Duration((low + w.rng.Float64()*(high-low)) * float64(w.lease))
}

// after has something happen on a goroutine of its own.
func (w *world) after(d time.Duration, what func()) { time.AfterFunc(d, what) }

func noise(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}
