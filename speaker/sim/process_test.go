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

// A file is what a node is configured with.
type file struct {
	members  map[string]netip.AddrPort // nil: they come and go by themselves
	lease    time.Duration
	at       [vips]int // which of its addresses each VIP has
	priority int
	preempt  bool
	linger   time.Duration
}

// A node is a machine: its kernel, its disk and, most of the time, a process.
type node struct {
	w     *world
	index int
	name  string
	busy  chan struct{} // an operator waits for the other

	kernel                      // what follows is guarded by the world's mutex
	home        netip.AddrPort  // where it is
	file        file            // its own, which may be old
	state       string          // the file of its election
	installed   bool            // it is to run
	sound       bool            // its checks pass
	overloaded  bool            // otherwise they fail slowly
	ends        [vips]time.Time // its leases
	undisturbed time.Time       // since when its process runs, and is not frozen
	proc        *process
}

var errDead = errors.New("this process is dead")

// A process is a herald.
type process struct {
	*node
	turn     chan struct{}
	port     memberlist.NodeAwareTransport
	fence    *fence.Fence
	election *election.Election
	speaker  *speaker.Speaker
	known    int // of how often its tables were altered
	left     atomic.Bool

	frozen    chan struct{} // until it is closed; nil: it runs. Guarded by the world's mutex, as is what follows
	dead      bool
	countdown int // steps until something happens to it; below 1: nothing will
	then      func()
	wants     map[netip.Addr]time.Duration // to be bound, and their lifetimes
	told      map[netip.Addr]time.Time     // to neighbours, and until when that may go on
}

// touch is where a process meets the outside.
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

// stands says how long the process stands still, and whether it is dead.
func (p *process) stands() (thaw <-chan struct{}, dead bool) {
	p.w.locked(func() { thaw, dead = p.frozen, p.dead })
	return thaw, dead
}

// await returns when the process is not frozen, false if it is dead.
func (p *process) await() bool { return fabric.Await(p.stands) }

// call has the kernel do something, before and after which the process may be frozen.
func (p *process) call(do func() error) (err error) {
	if err := p.touch(); err != nil {
		return err
	}
	p.w.locked(func() { err = do(); p.w.check() })
	return cmp.Or(p.touch(), err)
}

// do has the process do something, when it has done what it is at.
func (p *process) do(what func()) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.touch() == nil {
		what()
	}
}

// LeasesChanged is the speaker's, as the leases call it.
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

// work is what the process does by itself. Its loops run for a moment at a time.
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
	p.turn <- struct{}{} // until it is complete
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
	l := &flat.Leases{Node: p.name, Speaker: p}
	parts.Leases = leases{l, p}
	listen := func(at netip.AddrPort, a *transport.Admission) (memberlist.NodeAwareTransport, error) {
		if !p.await() {
			return nil, errDead
		}
		o, err := p.w.net.Open(at, a)
		if err == nil {
			o.(*fabric.Port).Frozen = p.stands
			p.w.locked(func() { p.port = o })
		}
		return o, err
	}
	p.election = election.NewOver(log, listen, handler{l, p})
	l.Election = p.election
	p.speaker = speaker.New(log, routes{}, route.New(), links{p}, parts, nil, p)
	return p.apply()
}

// Write takes a line of the log.
func (p *process) Write(line []byte) (int, error) {
	p.w.locked(func() { p.w.log(p.name, "%s", line) })
	return len(line), nil
}

// apply puts the node's file in force. The turn is the caller's.
func (p *process) apply() error {
	var all []speaker.VIP
	var c *election.Config
	p.w.locked(func() {
		c = p.config()
		for v := range vips {
			all = append(all, speaker.VIP{
				Name: fmt.Sprintf("vip%d", v), Addresses: addressesOf(v)[p.file.at[v] : p.file.at[v]+1], Interface: "eth0", Checks: []string{"check"},
				Linger: p.file.linger, Keep: true, Flat: &speaker.Flat{Priority: p.file.priority, Preempt: p.file.preempt, Lifetime: flat.Lifetime(p.file.lease)},
			})
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

// config is what the file says of the election. The mutex is held.
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

// newState gives a new process a file of its own, as the one before may not be done with its own. The mutex is held.
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

// verdict is what the checks say.
func (n *node) verdict() health.Verdict {
	v := health.Verdict{Name: "check", State: health.Unhealthy, Reason: "it fails", Since: time.Now(), Cause: time.Now()}
	n.w.locked(func() {
		v.Slow = n.overloaded && !n.sound
		if n.sound {
			v.State = health.Healthy
		}
	})
	return v
}

// with does something with the node's process, if it has one, when that has done what it is at.
func (n *node) with(what func(p *process)) {
	var p *process
	if n.w.locked(func() { p = n.proc }); p != nil {
		p.do(func() { what(p) })
	}
}

// judge has the checks speak.
func (n *node) judge(sound bool) { n.speak(sound, false) }

// speak is judge, of a node that may be overloaded.
func (n *node) speak(sound, overloaded bool) {
	n.w.locked(func() { n.sound, n.overloaded = sound, overloaded })
	n.with(func(p *process) { p.speaker.Observe(p.verdict()) })
}

// freeze freezes a process. The mutex is held.
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
		p.w.log(p.name, "is frozen no more")
		close(p.frozen)
		p.frozen, p.undisturbed = nil, time.Now()
	}
}

// kill ends a process where it is. Its kernel keeps what it has. The mutex is held.
func (p *process) kill() {
	if p.dead {
		return
	}
	p.w.log(p.name, "is dead")
	p.newState() // what it goes on to write is nobody's
	p.node.proc, p.dead = nil, true
	p.thaw()
	if p.port != nil {
		_ = p.port.Shutdown()
	}
	go func() {
		p.turn <- struct{}{} // it may be starting
		<-p.turn
		p.leave()
	}()
}

// leave leaves the election, once: who closes it as well would wait for a mutex.
func (p *process) leave() {
	if p.election != nil && p.left.CompareAndSwap(false, true) {
		_ = p.election.Close()
	}
}

// stop ends a process as package daemon does.
func (n *node) stop() {
	n.busy <- struct{}{}
	defer func() { <-n.busy }()
	var p *process
	var wait func(context.Context) error
	if n.with(func(of *process) { p, wait = of, of.speaker.Drain("herald is stopping", 0) }); wait == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	clean := wait(ctx) == nil
	if !clean {
		p.do(func() { clean = p.speaker.Stop() == nil })
	}
	p.leave()
	if clean && p.fence != nil {
		p.do(func() { _ = p.fence.Remove() })
	}
	p.w.locked(p.kill)
}
