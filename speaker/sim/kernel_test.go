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

// kernel is the state of a node that outlives its process. The world's mutex guards it.
type kernel struct {
	bound   map[netip.Addr]time.Time            // the expiry of each address
	sets    map[string]map[netip.Addr]time.Time // of nftables, with the expiry of elements; nil: no tables
	flushed time.Time                           // last flush, until the tables are restored; else zero
	altered int                                 // flushes and rebuilds

	slow  time.Time // calls are slow until then
	stuck time.Time // calls do not return before
	taken time.Time // last removal of addresses by another program
}

const (
	// late is the maximum delay of an element's expiry.
	late = 20 * time.Millisecond
	// pardon is the time within which an undisturbed process must restore flushed tables.
	pardon = 300 * time.Millisecond
	// maxDelay is the maximum delay of a call to a slow kernel.
	maxDelay = 1500 * time.Millisecond
)

var ever = time.Unix(1<<40, 0)

func (k *kernel) gates(a netip.Addr) bool { return !k.sets["vips"][a].IsZero() }

// answers reports whether the neighbours get an answer.
func (k *kernel) answers(a netip.Addr, now time.Time) bool {
	open := !k.gates(a) || now.Before(k.sets["answer"][a]) && now.Before(k.sets["until"][a])
	return open && now.Before(k.bound[a])
}

// nft gives a process access to its kernel's nftables.
type nft struct{ *process }

// hampered reports whether the kernel is slow.
func (p *process) hampered() (slow bool) {
	p.w.locked(func() { slow = time.Now().Before(p.slow) })
	return slow
}

func (n nft) call(do func() error) error {
	if n.hampered() {
		time.Sleep(noise(maxDelay))
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

// mended clears flushed if all bound addresses are gated again.
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

func (n nft) Locks() (locks []fence.Change, err error) {
	err = n.call(func() error {
		for _, s := range []string{"answer", "accept", "until"} {
			for a, end := range n.sets[s] {
				if lasts := time.Until(end); lasts > 0 {
					locks = append(locks, fence.Change{Set: fence.Set(s), Addr: a, Lasts: lasts})
				}
			}
		}
		return nil
	})
	return locks, err
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

// Watch reports nothing: the process checks its tables after each change.
func (n nft) Watch(chan<- struct{}) (stop func(), err error) { return func() {}, nil }

// answering returns the nodes that answer for an address. It leaves out nodes that had no time yet to restore flushed
// tables. The caller holds the mutex.
func (w *world) answering(a netip.Addr) (all []*node) {
	now := time.Now()
	for _, n := range w.nodes {
		since := slices.MaxFunc([]time.Time{n.flushed, n.slow.Add(maxDelay), n.stuck, n.undisturbed}, time.Time.Compare)
		pardoned := !n.flushed.IsZero() && (n.proc == nil || n.proc.frozen != nil || now.Sub(since) < pardon)
		if n.answers(a, now) && !pardoned {
			all = append(all, n)
		}
	}
	return all
}

// check checks the rules. It runs after each change of a kernel, except an expiry, which can only end an answer. The caller
// holds the mutex.
func (w *world) check() {
	w.figures.checks++
	for v := range vips {
		for _, a := range addressesOf(v) {
			for i, n := range w.answering(a) {
				if i > 0 {
					w.fail("two answer", "%s answers for %v as well", n.name, a)
				}
				if beyond := time.Since(n.ends[a]); beyond >= 0 {
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

// links keeps the node's addresses, as netutil/address does.
type links struct{ *process }

func (l links) Bind(link string, a netip.Addr) error { return l.BindFor(link, a, 10*time.Second) }

func (l links) BindFor(_ string, a netip.Addr, lifetime time.Duration) error {
	return l.call(func() error { l.wants[a] = lifetime; l.refresh(); return nil })
}

// refresh renews bound addresses, and restores removed ones after a second. The caller holds the mutex.
func (p *process) refresh() {
	for a, lifetime := range p.wants {
		if time.Since(p.taken) > time.Second {
			p.bound[a] = time.Now().Add(lifetime + noise(time.Second))
		}
	}
}

func (l links) Unbind(_ string, addrs ...netip.Addr) error {
	if l.w.broken == "steps down first" && l.election != nil {
		for _, a := range addrs {
			l.election.StepDown(a.String())
		}
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
			err = errors.New("the address was removed")
		}
	})
	return err
}

// announcer sends gratuitous ARP until a time, more often than package arp does.
type announcer struct{ *process }

func (n announcer) Announce(until time.Time, link string, addrs ...netip.Addr) error {
	n.Limit(until, link, addrs...)
	return n.call(func() error { n.tell(); return nil })
}

// tell sends all announcements that are due. The caller holds the mutex.
func (p *process) tell() {
	for a, until := range p.told {
		if !time.Now().Before(until) && p.w.broken != "announces without limit" {
			continue
		}
		p.w.figures.frames++
		if beyond := time.Since(p.ends[a]); beyond >= 0 {
			p.w.fail("late announcement", "%s announces %v, whose lease ended %v ago", p.name, a, beyond)
		}
		if slices.ContainsFunc(p.w.answering(a), func(n *node) bool { return n != p.node }) {
			p.w.fail("two answer", "%s announces %v, and another node answers for it", p.name, a)
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

// leases records the ends of leases.
type leases struct {
	*flat.Leases
	p *process
}

func (l leases) Lease(names ...string) speaker.Lease {
	needed := names
	if l.p.w.broken == "leases of names only" {
		needed = names[:1]
	}
	state := l.Leases.Lease(needed...)
	if !state.Until.IsZero() {
		l.p.w.locked(func() {
			for _, name := range names {
				if addr, err := netip.ParseAddr(name); err == nil {
					l.p.ends[addr] = state.Until
				}
			}
		})
	}
	if l.p.touch() != nil {
		return speaker.Lease{}
	}
	if l.p.w.broken == "longer than granted" && !state.Until.IsZero() {
		state.Until = state.Until.Add(l.p.w.lease)
	}
	return state
}

func (l leases) StepDown(names ...string) {
	end := func() error {
		l.p.w.log(l.p.name, "steps down from %v", names)
		for _, name := range names {
			if addr, err := netip.ParseAddr(name); err == nil && time.Now().Before(l.p.ends[addr]) {
				l.p.ends[addr] = time.Now()
			}
		}
		return nil
	}
	if l.p.call(end) == nil {
		l.Leases.StepDown(names...)
	}
}

// handler passes events of the election to the leases.
type handler struct {
	*flat.Leases
	p *process
}

func (handler) AliveChanged([]string) {}
func (h handler) MemberStatesChanged([]election.MemberState) {
	h.p.do(func() { h.p.speaker.MembersChanged() })
}

// routes does nothing.
type routes struct{}

func (routes) Announce(...bgp.Route) error    { return nil }
func (routes) Withdraw(...netip.Prefix) error { return nil }
