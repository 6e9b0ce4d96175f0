package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
)

// Linger is how long a default gateway that is none any more keeps its session, for that with the new one to come up.
const Linger = 5 * time.Second

// following are the default gateways of a family to have sessions with, the current ones first. It is a value.
type following []gateway

// gateway is one, and if it is none any more, until when its session stays.
type gateway struct {
	addr  netip.Addr
	until time.Time
}

// next is f after the default gateways have been seen to be these.
func (f following) next(now time.Time, current []netip.Addr) following {
	var out following
	for _, addr := range current {
		out = append(out, gateway{addr: addr})
	}
	for _, g := range f {
		if g.until.IsZero() {
			g.until = now.Add(Linger)
		}
		if now.Before(g.until) && !slices.Contains(current, g.addr) {
			out = append(out, g)
		}
	}
	return out
}

// follow puts the default gateways there are in the place of the peers of set that are to be these.
func (p *Peering) follow(set *Set) error {
	known := make(map[string]following)
	for _, family := range []config.Family{config.IPv4, config.IPv6} {
		name := config.GatewayName(family)
		if !slices.ContainsFunc(set.BGP.Peers, func(peer bgp.Peer) bool { return peer.Gateway == name }) {
			continue
		}
		now, err := p.options.Gateways(family)
		if err != nil {
			return fmt.Errorf("find the %s default gateway: %w", family, err)
		}
		known[name] = p.gateways[name].next(time.Now(), now)
	}
	p.gateways = known
	set.place(known)
	return nil
}

// place replaces the peers that are default gateways by one for each of the gateways, by [bgp.Peer.Gateway]. One that is
// a peer by its address already is that, and where there is none its peer stays and waits.
func (s *Set) place(gateways map[string]following) {
	peers := slices.DeleteFunc(slices.Clone(s.BGP.Peers), func(p bgp.Peer) bool { return p.Gateway != "" })
	for _, p := range s.BGP.Peers {
		if p.Gateway == "" {
			continue
		}
		if s.Gateways == nil {
			s.Gateways = make(map[string][]string)
		}
		if len(gateways[p.Gateway]) == 0 {
			peers, s.Gateways[p.Gateway] = append(peers, p), []string{p.Gateway}
		}
		for _, g := range gateways[p.Gateway] {
			one := p
			one.Address = g.addr
			if p.BFD != nil && g.addr.IsLinkLocalUnicast() { // always on the link
				one.BFD = new(*p.BFD)
				one.BFD.Multihop = false
			}
			s.Gateways[p.Gateway] = append(s.Gateways[p.Gateway], one.Name())
			if !slices.ContainsFunc(peers, func(other bgp.Peer) bool { return other.Name() == one.Name() }) {
				peers = append(peers, one)
			}
		}
	}
	s.BGP.Peers = peers
}
