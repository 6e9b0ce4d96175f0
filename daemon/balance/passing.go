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

// Chance passes misrouted packets on; [secondchance.Chance] implements it. Only Run blocks.
type Chance interface {
	Set(secondchance.Wanted)
	Status() secondchance.Status
	Run(context.Context)
}

// passing sets the desired state of a Chance.
type passing struct {
	chance Chance

	mu sync.Mutex
	inputs
}

// inputs determine the desired state.
type inputs struct {
	vips    map[netip.Addr][]string // checks of the VIPs to pass packets on for
	leaving map[netip.Addr]departure
	members []election.MemberState
	links   []string
}

// has reports whether packets for a VIP are passed on.
func (in inputs) has(addr netip.Addr) bool {
	_, ok := in.vips[addr]
	return ok
}

// departure tells since when this node is leaving a VIP, and until when routers may send new connections.
type departure struct{ began, until time.Time }

// change changes inputs and sets the desired state.
func (p *passing) change(f func(*inputs)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.inputs)
	p.chance.Set(p.wanted())
}

// setVIPs takes the bridged VIPs of c that several nodes announce at once. Packets of other VIPs are not passed on.
func (p *passing) setVIPs(c *config.Config) {
	p.change(func(in *inputs) {
		in.vips = make(map[netip.Addr][]string)
		for _, v := range c.VIPs {
			for _, addr := range v.Addresses {
				if *v.Bridge && v.Announce != config.AnnounceARP {
					in.vips[addr] = v.Checks
				}
			}
		}
		maps.DeleteFunc(in.leaving, func(addr netip.Addr, _ departure) bool { return !in.has(addr) })
	})
}

// wanted returns the desired state. Its other members are alive and pass packets on. New connections are
// passed on if this node is leaving the VIP and one of them serves it.
func (in inputs) wanted() secondchance.Wanted {
	w := secondchance.Wanted{VIPs: make(map[netip.Addr]bool), Links: in.links}
	for _, s := range in.members {
		m := secondchance.Member{Name: s.Member, Number: secondchance.NumberOf(s.Member), Addr: s.Address.Addr().Unmap()}
		switch {
		case s.Self:
			w.Self = m
		case passes(s):
			w.Others = append(w.Others, m)
		}
	}
	for addr := range in.vips {
		_, left := in.leaving[addr]
		w.VIPs[addr] = left && len(in.servers(addr)) > 0
	}
	return w
}

// passes reports whether packets may be passed on to a member. A draining member keeps its connections.
func passes(s election.MemberState) bool { return !s.Self && !s.TimedOut && s.Advertisement.Passing }

// servers returns the names of other members that pass packets on and serve a VIP.
func (in inputs) servers(addr netip.Addr) (names []string) {
	for _, s := range in.members {
		if passes(s) && member(s).Serves(in.vips[addr]) {
			names = append(names, s.Member)
		}
	}
	return names
}

// status returns the members that new connections to a VIP are passed on to while routers may send them, and since when.
func (p *passing) status(addr netip.Addr) (members []string, began time.Time) {
	st := p.chance.Status()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.leaving[addr]
	if st.Able && time.Now().Before(d.until) {
		members = slices.DeleteFunc(p.servers(addr), func(name string) bool { return !slices.Contains(st.To, name) })
	}
	return members, d.began
}

// member converts the state of a member. A member that left, perhaps for an upgrade, is draining.
func member(s election.MemberState) balancer.Member {
	return balancer.Member{
		Name: s.Member, Addr: s.Address.Addr(), Checks: s.Advertisement.Checks,
		Draining: s.Advertisement.Draining || s.Left, TimedOut: s.TimedOut,
	}
}
