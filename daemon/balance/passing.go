package balance

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/secondchance"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
)

// Chance passes packets of others' connections on; [secondchance.Chance] does. None of its methods but Run waits.
type Chance interface {
	Set(secondchance.Wanted)
	Status() secondchance.Status
	Run(context.Context)
}

// passing is what is wanted of it.
type passing struct {
	chance Chance

	mu sync.Mutex
	passed
}

// passed is what bears on whose packets are passed on.
type passed struct {
	vips    map[netip.Addr][]string // and the checks of who serves them
	leaving map[netip.Addr]departing
	offered []election.MemberState
	links   []string
}

// has reports whether packets for a VIP are passed on.
func (p passed) has(addr netip.Addr) bool {
	_, ok := p.vips[addr]
	return ok
}

// departing is since when this node has left a VIP, and until when routers may bring new connections to it.
type departing struct{ began, until time.Time }

// change changes what is wanted.
func (p *passing) change(f func(*passed)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.passed)
	p.chance.Set(p.wanted())
}

// setVIPs has packets passed on for the VIPs of c that several nodes announce at once, unless they are not bridged.
func (p *passing) setVIPs(c *config.Config) {
	p.change(func(of *passed) {
		of.vips = make(map[netip.Addr][]string)
		for _, v := range c.VIPs {
			for _, addr := range v.Addresses {
				if *v.Bridge && v.Announce != config.AnnounceARP {
					of.vips[addr] = v.Checks
				}
			}
		}
		maps.DeleteFunc(of.leaving, func(addr netip.Addr, _ departing) bool { return !of.has(addr) })
	})
}

// wanted is what others are to be passed, which are alive and able to pass on themselves: new connections to a VIP, too, that this node has left
// and one of them serves.
func (p passed) wanted() secondchance.Wanted {
	w := secondchance.Wanted{VIPs: make(map[netip.Addr]bool), Links: p.links}
	for _, o := range p.offered {
		m := secondchance.Member{Name: o.Member, Number: secondchance.NumberOf(o.Member), Addr: o.Address.Addr().Unmap()}
		switch {
		case o.Self:
			w.Self = m
		case passes(o):
			w.Others = append(w.Others, m)
		}
	}
	for addr := range p.vips {
		_, left := p.leaving[addr]
		w.VIPs[addr] = left && len(p.servers(addr)) > 0
	}
	return w
}

// passes reports whether packets may be passed on to a member. One that drains keeps its connections.
func passes(o election.MemberState) bool { return !o.Self && !o.TimedOut && o.Advertisement.Passing }

// servers are the others, by name, that are passed new connections to a VIP and serve it.
func (p passed) servers(addr netip.Addr) (names []string) {
	for _, o := range p.offered {
		if passes(o) && member(o).Serves(p.vips[addr]) {
			names = append(names, o.Member)
		}
	}
	return names
}

// leave has new connections to addrs passed on, too.
func (p *passing) leave(until time.Time, addrs []netip.Addr) {
	p.change(func(of *passed) {
		for _, addr := range addrs {
			if of.has(addr) {
				of.leaving[addr] = departing{time.Now(), until}
			}
		}
	})
}

// serve ends that.
func (p *passing) serve(addrs []netip.Addr) {
	p.change(func(of *passed) {
		for _, addr := range addrs {
			delete(of.leaving, addr)
		}
	})
}

// status names the members that serve new connections to a VIP which are passed on, and tells since when, while routers may bring them.
func (p *passing) status(addr netip.Addr) (to []string, began time.Time) {
	is := p.chance.Status()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.leaving[addr]
	if is.Able && time.Now().Before(d.until) {
		to = slices.DeleteFunc(p.servers(addr), func(name string) bool { return !slices.Contains(is.To, name) })
	}
	return to, d.began
}

// member is o as balancers know it. One that left, for an upgrade perhaps, drains.
func member(o election.MemberState) balancer.Member {
	return balancer.Member{
		Name: o.Member, Addr: o.Address.Addr(), Checks: o.Advertisement.Checks,
		Draining: o.Advertisement.Draining || o.Left, TimedOut: o.TimedOut,
	}
}
