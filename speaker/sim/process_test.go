package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/testenv/fabric"
)

// file is the configuration of a node.
type file struct {
	members  map[string]netip.AddrPort // nil: an open cluster
	lease    time.Duration
	at       [vips]int // index of each VIP's address in addressesOf
	renamed  [vips]bool
	joint    bool       // the addresses of all VIPs are one VIP's
	pool     [vips]bool // on this node the address is not a VIP but a Service's
	priority int
	preempt  bool
	linger   time.Duration
}

// vips returns the VIPs in a file, without settings.
func (f file) vips() (all []speaker.VIP) {
	for v := range vips {
		addr := addressesOf(v)[f.at[v]]
		vip := speaker.VIP{Name: fmt.Sprintf("vip%d", v), Addresses: []netip.Addr{addr}}
		switch {
		case f.joint && v > 0:
			all[0].Addresses = append(all[0].Addresses, addr)
			continue
		case f.joint:
			vip.Name = "joint"
		case f.pool[v]:
			vip.Name, vip.Service = addr.String(), true
		case f.renamed[v]:
			vip.Name += "-renamed"
		}
		all = append(all, vip)
	}
	return all
}

// node is a machine: its kernel, its disk and, most of the time, a process.
type node struct {
	w     *world
	index int
	name  string
	busy  chan struct{} // a lock of the operator's actions

	kernel                     // the world's mutex guards this and the fields below
	home        netip.AddrPort // its address
	file        file           // may be older than the world's target
	state       string         // path of the election's state file
	installed   bool
	sound       bool                     // its checks pass
	overloaded  bool                     // its checks fail slowly, unless sound
	ends        map[netip.Addr]time.Time // ends of its leases
	undisturbed time.Time                // since when its process runs and is not frozen
	proc        *process
}

var errDead = errors.New("this process is dead")

// process is a running herald.
type process struct {
	*node
	turn     chan struct{}
	port     memberlist.Transport
	fence    *fence.Fence
	election *election.Election
	speaker  *speaker.Speaker
	known    int // value of altered at the last check of the tables
	left     atomic.Bool

	frozen    chan struct{} // closed at the thaw; nil: not frozen. The world's mutex guards this and the fields below
	dead      bool
	countdown int // calls of touch until then is called; below 1: never
	then      func()
	wants     map[netip.Addr]time.Duration // lifetimes of the addresses to bind
	told      map[netip.Addr]time.Time     // ends of the announcements to neighbours
}

// touch runs before and after each call to kernel, network or lease. The process may be frozen or killed here.
func (p *process) touch() error {
	time.Sleep(noise(p.w.latency))
	p.w.locked(func() {
		if p.countdown--; p.countdown == 0 {
			p.then()
		}
	})
	if !p.await() {
		return errDead
	}
	return nil
}

// status returns a channel that is closed at the thaw, nil if the process runs, and whether it is dead.
func (p *process) status() (thaw <-chan struct{}, dead bool) {
	p.w.locked(func() { thaw, dead = p.frozen, p.dead })
	return thaw, dead
}

// await waits while the process is frozen. It returns false if the process is dead.
func (p *process) await() bool { return fabric.Await(p.status) }

// hangs reports whether calls to the kernel do not return.
func (p *process) hangs() (stuck bool) {
	p.w.locked(func() { stuck = time.Now().Before(p.stuck) })
	return stuck
}

// call calls do in the kernel. The process may be frozen before and after it.
func (p *process) call(do func() error) (err error) {
	for p.hangs() {
		time.Sleep(time.Millisecond)
	}
	if err := p.touch(); err != nil {
		return err
	}
	p.w.locked(func() { err = do(); p.w.check() })
	return cmp.Or(p.touch(), err)
}

// do calls f in the process after its current work.
func (p *process) do(f func()) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.touch() == nil {
		f()
	}
}

// LeasesChanged informs the speaker for flat.Leases.
func (p *process) LeasesChanged() { p.do(func() { p.speaker.LeasesChanged() }) }

// Tell implements [speaker.Members], as package daemon does.
func (p *process) Tell(serves map[string]bool) {
	p.election.Advertise(election.Advertisement{Checks: serves})
}

// Heard implements [speaker.Members].
func (p *process) Heard(vip string, _ []string) (last time.Time) {
	for _, o := range p.election.MemberStates() {
		if !o.Self && !o.TimedOut && o.Advertisement.Checks[vip] && o.Received.After(last) {
			last = o.Received
		}
	}
	return last
}

// work runs the loops of the process, for a moment at a time.
func (p *process) work() {
	for looked := time.Now(); p.await(); time.Sleep(5*time.Millisecond + noise(30*time.Millisecond)) {
		p.do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 1)
			defer cancel()
			altered := 0
			p.w.locked(func() { p.refresh(); p.tell(); p.w.check(); altered = p.altered })
			p.speaker.Run(ctx)
			if p.fence == nil || altered == p.known && time.Since(looked) < time.Second {
				return
			}
			looked = time.Now()
			_ = p.fence.Check() // as Keep does
			if p.w.locked(func() { altered = p.altered }); altered != p.known {
				p.known = altered
				p.speaker.FenceClosed()
			}
		})
	}
}

// start starts a process, as package daemon does.
func (n *node) start() {
	n.busy <- struct{}{}
	defer func() { <-n.busy }()
	p := &process{node: n, turn: make(chan struct{}, 1), wants: make(map[netip.Addr]time.Duration), told: make(map[netip.Addr]time.Time)}
	p.turn <- struct{}{} // until assemble has returned
	idle := false
	n.w.locked(func() {
		if idle = n.proc == nil && n.installed && !n.w.over; idle {
			n.proc, n.undisturbed = p, time.Now()
			n.newState()
			n.w.figures.starts++
			n.w.log(n.name, "starts")
		}
	})
	if !idle {
		return
	}
	if err := p.assemble(); err != nil {
		n.w.locked(func() { n.w.log(n.name, "cannot start: %v", err); p.kill() })
		time.AfterFunc(time.Second, n.start)
	} else {
		go p.work()
	}
	<-p.turn
}

func (p *process) assemble() (err error) {
	if err := p.call(func() error { clear(p.bound); return nil }); err != nil { // Sweep
		return err
	}
	log := slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: p.w.level}))
	parts := speaker.FlatParts{Announcer: announcer{p}}
	if p.w.broken != "no fence" {
		if p.fence, err = fence.NewOver(log, nft{p}, fence.Options{}); err != nil {
			return err
		}
		parts.Fence = p.fence
	}
	l := &flat.Leases{Speaker: p}
	parts.Leases = leases{l, p}
	listen := func(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error) {
		if !p.await() {
			return nil, errDead
		}
		o, err := p.w.net.Open(at, a)
		if err == nil {
			o.(*fabric.Port).Frozen = p.status
			p.w.locked(func() { p.port = o })
		}
		return o, err
	}
	p.election = election.NewOver(log, listen, handler{l, p})
	l.Election = p.election
	p.speaker = speaker.New(log, routes{}, route.New(), links{p}, parts, nil, p)
	return p.apply()
}

// Write adds a line of the process's log to the trace.
func (p *process) Write(line []byte) (int, error) {
	p.w.locked(func() { p.w.log(p.name, "%s", line) })
	return len(line), nil
}

// apply applies the node's file. The caller holds the turn.
func (p *process) apply() error {
	var all []speaker.VIP
	var c *election.Config
	p.w.locked(func() {
		c = p.config()
		for _, v := range p.file.vips() {
			v.Interface, v.Checks, v.Linger, v.Keep = "eth0", []string{"check"}, p.file.linger, true
			v.Flat = &speaker.Flat{Priority: p.file.priority, Preempt: p.file.preempt, Lifetime: flat.Lifetime(p.file.lease), Leases: flat.LeasesOf(v.Name, v.Addresses...)}
			all = append(all, v)
		}
	})
	if !p.await() {
		return errDead
	}
	if err := p.election.Apply(c); err != nil {
		return err
	}
	p.speaker.Apply(all, nil, []health.Verdict{p.verdict()})
	return nil
}

// config returns the election's settings in the file. The caller holds the mutex.
func (n *node) config() *election.Config {
	c := &election.Config{Self: n.name, Settings: electorate.Settings{Keys: [][]byte{make([]byte, 16)}, Lease: n.file.lease}, State: n.state}
	if c.Members = maps.Clone(n.file.members); c.Members == nil {
		c.Join, c.Bootstrap, c.Forget = homes(), n.name == "m1" && n.w.latest().Number == 0, new(forget*n.file.lease)
	}
	if !c.Members[n.name].IsValid() {
		c.Bind = n.home
	}
	if n.w.broken == "no quorum" {
		c.Quorum = electorate.None
	}
	return c
}

// newState copies the state file for a new process, since the previous process may still write to the old one. The caller
// holds the mutex.
func (n *node) newState() {
	b, err := os.ReadFile(n.state)
	n.state = filepath.Join(n.w.dir, fmt.Sprintf("%s.%d", n.name, n.w.figures.starts))
	if err == nil {
		err = os.WriteFile(n.state, b, 0o600)
	}
	if err != nil && !os.IsNotExist(err) {
		panic(err)
	}
}

// verdict returns the verdict of the checks.
func (n *node) verdict() health.Verdict {
	v := health.Verdict{Name: "check", State: health.Unhealthy, Reason: "failed by the schedule", Since: time.Now(), Cause: time.Now()}
	n.w.locked(func() {
		v.Slow = n.overloaded && !n.sound
		if n.sound {
			v.State = health.Healthy
		}
	})
	return v
}

// with calls f in the node's process, if there is one, after its current work.
func (n *node) with(f func(p *process)) {
	var p *process
	if n.w.locked(func() { p = n.proc }); p != nil {
		p.do(func() { f(p) })
	}
}

// setSound sets the verdict of the checks.
func (n *node) setSound(sound bool) { n.setHealth(sound, false) }

// setHealth sets the verdict of the checks; if overloaded, they fail slowly.
func (n *node) setHealth(sound, overloaded bool) {
	n.w.locked(func() { n.sound, n.overloaded = sound, overloaded })
	n.with(func(p *process) { p.speaker.Observe(p.verdict()) })
}

// freeze freezes a process for d. The caller holds the mutex.
func (p *process) freeze(d time.Duration) {
	if p.dead || p.frozen != nil {
		return
	}
	p.w.log(p.name, "is frozen for %v", d)
	p.frozen = make(chan struct{})
	time.AfterFunc(d, func() { p.w.locked(p.thaw) })
}

func (p *process) thaw() {
	if p.frozen != nil {
		p.w.log(p.name, "is thawed")
		close(p.frozen)
		p.frozen, p.undisturbed = nil, time.Now()
	}
}

// kill ends a process at its current step. The kernel keeps its state. The caller holds the mutex.
func (p *process) kill() {
	if p.dead {
		return
	}
	p.w.log(p.name, "is dead")
	p.newState() // later writes of the dead process go to the old file
	p.node.proc, p.dead = nil, true
	p.thaw()
	if p.port != nil {
		_ = p.port.Shutdown()
	}
	go func() {
		p.turn <- struct{}{} // waits for assemble
		<-p.turn
		p.leave()
	}()
}

// leave closes the election once: a second Close would wait for a mutex.
func (p *process) leave() {
	if p.election != nil && p.left.CompareAndSwap(false, true) {
		_ = p.election.Close()
	}
}

// stop ends a process with a drain, as package daemon does.
func (n *node) stop() {
	n.busy <- struct{}{}
	defer func() { <-n.busy }()
	var p *process
	var wait func(context.Context) error
	if n.with(func(running *process) { p, wait = running, running.speaker.Drain("herald is stopping", 0) }); wait == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	clean := wait(ctx) == nil
	if !clean {
		p.do(func() { clean = p.speaker.Stop() == nil })
	}
	if clean { // as flat.Flat.Close does
		p.leave()
		if p.fence != nil {
			p.do(func() { _ = p.fence.Remove() })
		}
	}
	p.w.locked(p.kill)
}
