package sim

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
)

// A kernel is what of a node outlives its process. The world's mutex guards it.
type kernel struct {
	bound   map[netip.Addr]time.Time            // addresses, and when they expire
	sets    map[string]map[netip.Addr]time.Time // of nftables, and when elements end; nil: no tables
	flushed time.Time                           // by somebody else, and not put back since; zero: not so
	altered int                                 // how often the tables were flushed, or made anew
	slow    time.Time                           // until when it is held up by others
	taken   time.Time                           // when addresses were taken away
}

const (
	// late is by how much the kernel may end an element later.
	late = 20 * time.Millisecond
	// pardon is within what a process that nothing keeps from it has put back tables that were flushed.
	pardon = 300 * time.Millisecond
	// held is how long a slow kernel holds up a call.
	held = 1500 * time.Millisecond
)

var ever = time.Unix(1<<40, 0)

func (k *kernel) gates(a netip.Addr) bool { return !k.sets["vips"][a].IsZero() }

// answers is whether the neighbours get an answer.
func (k *kernel) answers(a netip.Addr, now time.Time) bool {
	open := !k.gates(a) || now.Before(k.sets["answer"][a]) && now.Before(k.sets["until"][a])
	return open && now.Before(k.bound[a])
}

// nft is the kernel's nftables as a process reaches them.
type nft struct{ *process }

// hampered is whether the kernel is held up by others.
func (p *process) hampered() (yes bool) {
	p.w.locked(func() { yes = time.Now().Before(p.slow) })
	return yes
}

func (n nft) call(do func() error) error {
	if n.hampered() {
		time.Sleep(noise(held))
	}
	return n.process.call(do)
}

func (n nft) Filtered() (addrs []netip.Addr, err error) {
	err = n.call(func() error { addrs = slices.Collect(maps.Keys(n.sets["vips"])); return nil })
	return addrs, err
}

func (n nft) Rebuild(filtered, _ []netip.Addr) error {
	return n.call(func() error {
		n.sets = map[string]map[netip.Addr]time.Time{"vips": {}, "answer": {}, "accept": {}, "until": {}}
		for _, a := range filtered {
			n.sets["vips"][a] = ever
		}
		n.mended()
		n.node.altered++
		return nil
	})
}

// mended takes note of whether all is in order again that somebody has flushed: what the node has bound is gated.
func (n nft) mended() {
	for a, end := range n.bound {
		if time.Now().Before(end) && !n.gates(a) {
			return
		}
	}
	n.flushed = time.Time{}
}

func (n nft) Intact(filtered, _ []netip.Addr) (ok bool, err error) {
	err = n.call(func() error {
		ok = n.sets != nil && len(n.sets["vips"]) == len(filtered) && !slices.ContainsFunc(filtered, func(a netip.Addr) bool { return !n.gates(a) })
		return nil
	})
	return ok, err
}

func (n nft) Apply(changes []fence.Change) error {
	return n.call(func() error {
		if n.sets == nil {
			return syscall.ENOENT
		}
		for _, c := range changes {
			switch set := n.sets[string(c.Set)]; {
			case c.Lasts == 0:
				delete(set, c.Addr)
			case c.Lasts < 0 || n.w.broken == "no expiry" || n.w.broken == "second lock never ends" && c.Set == "until":
				set[c.Addr] = ever
			default:
				set[c.Addr] = time.Now().Add(c.Lasts + noise(late))
			}
		}
		n.mended()
		return nil
	})
}

func (n nft) Remove() error { return n.call(func() error { n.sets = nil; return nil }) }

// Watch tells nothing: the process looks at the tables when they have been altered.
func (n nft) Watch(chan<- struct{}) (stop func(), err error) { return func() {}, nil }

// answering are the nodes that answer for an address, but those whose tables somebody flushed, and that could not put
// them back since. The mutex is held.
func (w *world) answering(a netip.Addr) (all []*node) {
	now := time.Now()
	for _, n := range w.nodes {
		since := slices.MaxFunc([]time.Time{n.flushed, n.slow.Add(held), n.undisturbed}, time.Time.Compare)
		pardoned := !n.flushed.IsZero() && (n.proc == nil || n.proc.frozen != nil || now.Sub(since) < pardon)
		if n.answers(a, now) && !pardoned {
			all = append(all, n)
		}
	}
	return all
}

// check is called whenever a kernel has changed. What expires can only end an answer, and so needs no look. The mutex
// is held.
func (w *world) check() {
	w.figures.checks++
	for v := range vips {
		for _, a := range addressesOf(v) {
			for i, n := range w.answering(a) {
				if i > 0 {
					w.fail("two answer", "%s answers for %v, too", n.name, a)
				}
				if beyond := time.Since(n.ends[v]); beyond >= 0 {
					w.fail("beyond its lease", "%s answers for %v, whose lease ended %v ago", n.name, a, beyond)
				}
				if w.figures.held++; w.last[v] != n {
					w.last[v] = n
					w.log(n.name, "answers for %v", a)
					w.figures.handovers++
				}
			}
		}
	}
}

// What else a process is given of the outside.

// links are the node's addresses, as netutil/address keeps them.
type links struct{ *process }

func (l links) Bind(link string, a netip.Addr) error { return l.BindFor(link, a, 10*time.Second) }

func (l links) BindFor(_ string, a netip.Addr, lifetime time.Duration) error {
	return l.call(func() error { l.wants[a] = lifetime; l.refresh(); return nil })
}

// refresh keeps what is bound, and puts back what was taken away a second later. The mutex is held.
func (p *process) refresh() {
	for a, lifetime := range p.wants {
		if time.Since(p.taken) > time.Second {
			p.bound[a] = time.Now().Add(lifetime + noise(time.Second))
		}
	}
}

func (l links) Unbind(_ string, addrs ...netip.Addr) error {
	if l.w.broken == "resigns first" && l.election != nil {
		l.election.StepDown("vip0", "vip1")
		time.Sleep(50 * time.Millisecond)
	}
	if l.hampered() && noise(2) == 0 {
		return syscall.ENOBUFS
	}
	return l.call(func() error {
		for _, a := range addrs {
			delete(l.wants, a)
			delete(l.bound, a)
		}
		return nil
	})
}

func (l links) Try(_ string, a netip.Addr) (err error) {
	l.w.locked(func() {
		if l.wants[a] != 0 && !time.Now().Before(l.bound[a]) {
			err = errors.New("somebody took it away")
		}
	})
	return err
}

// announcer sends gratuitous ARP until the limit, more often than package arp does.
type announcer struct{ *process }

func (n announcer) Announce(until time.Time, link string, addrs ...netip.Addr) error {
	n.Limit(until, link, addrs...)
	return n.call(func() error { n.tell(); return nil })
}

// tell sends what may be sent. The mutex is held.
func (p *process) tell() {
	for a, until := range p.told {
		if !time.Now().Before(until) && p.w.broken != "announces without limit" {
			continue
		}
		p.w.figures.frames++
		if beyond := time.Since(p.ends[a.As4()[2]]); beyond >= 0 {
			p.w.fail("late announcement", "%s announces %v, whose lease ended %v ago", p.name, a, beyond)
		}
		if slices.ContainsFunc(p.w.answering(a), func(n *node) bool { return n != p.node }) {
			p.w.fail("two answer", "%s announces %v, and another answers for it", p.name, a)
		}
	}
}

func (n announcer) Try() error { return nil }

func (n announcer) Withdraw(_ string, addrs ...netip.Addr) {
	n.w.locked(func() {
		maps.DeleteFunc(n.told, func(a netip.Addr, _ time.Time) bool { return slices.Contains(addrs, a) })
	})
}

func (n announcer) Limit(until time.Time, _ string, addrs ...netip.Addr) {
	n.w.locked(func() {
		for _, a := range addrs {
			n.told[a] = until
		}
	})
}

// leases note when leases end.
type leases struct {
	*flat.Leases
	p *process
}

func (l leases) Lease(name string) speaker.Lease {
	is := l.Leases.Lease(name)
	if !is.Until.IsZero() {
		l.p.w.locked(func() { l.p.ends[name[3]-'0'] = is.Until })
	}
	if l.p.touch() != nil {
		return speaker.Lease{}
	}
	if l.p.w.broken == "longer than granted" && !is.Until.IsZero() {
		is.Until = is.Until.Add(l.p.w.lease)
	}
	return is
}

func (l leases) StepDown(name string) {
	resign := func() error {
		if end := &l.p.ends[name[3]-'0']; time.Now().Before(*end) {
			l.p.w.log(l.p.name, "resigns %s", name)
			*end = time.Now()
		}
		return nil
	}
	if l.p.call(resign) == nil {
		l.Leases.StepDown(name)
	}
}

// handler has the leases learn of events.
type handler struct {
	*flat.Leases
	of *process
}

func (handler) AliveChanged([]string) {}
func (h handler) MemberStatesChanged([]election.MemberState) {
	h.of.do(func() { h.of.speaker.MembersChanged() })
}

// routes are none.
type routes struct{}

func (routes) Announce(...bgp.Route) error    { return nil }
func (routes) Withdraw(...netip.Prefix) error { return nil }
