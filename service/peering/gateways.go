package peering

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Linger is how long a former default gateway keeps its session, while the session with the new one comes up.
const Linger = 5 * time.Second

// following are the default gateways of a family that have sessions, the current ones first. It is a value.
type following []gateway

// gateway is a default gateway. until is the end of the session with a former gateway; zero for a current one.
type gateway struct {
	addr  netip.Addr
	until time.Time
}

// next returns f after an observation of the current default gateways.
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

// follow replaces the peers of set that are default gateways by the current gateways.
func (p *Peering) follow(set *Set) error {
	known := make(map[string]following)
	for _, family := range []v1alpha1.Family{v1alpha1.IPv4, v1alpha1.IPv6} {
		name := v1alpha1.GatewayName(family)
		if !slices.ContainsFunc(set.BGP.Peers, func(peer v1alpha1.Peer) bool { return peer.Name() == name }) {
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

// place replaces each peer that is a default gateway by one peer per gateway address, by [v1alpha1.Peer.Name]. An address
// that another peer has is left to that peer. While there is no gateway, the peer stays without an address and waits.
func (s *Set) place(gateways map[string]following) {
	isGateway := func(p v1alpha1.Peer) bool { return p.DefaultGateway != "" }
	peers := slices.DeleteFunc(slices.Clone(s.BGP.Peers), isGateway)
	for _, p := range s.BGP.Peers {
		if !isGateway(p) {
			continue
		}
		if s.Gateways == nil {
			s.Gateways = make(map[string][]string)
		}
		name := p.Name()
		if len(gateways[name]) == 0 {
			peers, s.Gateways[name] = append(peers, p), []string{name}
		}
		for _, g := range gateways[name] {
			at := p
			at.Address = g.addr
			if p.BFD != nil && g.addr.IsLinkLocalUnicast() { // always on the link
				at.BFD = p.BFD.DeepCopy()
				at.BFD.Multihop = new(false)
			}
			s.Gateways[name] = append(s.Gateways[name], at.Name())
			if !slices.ContainsFunc(peers, func(other v1alpha1.Peer) bool { return other.Name() == at.Name() }) {
				peers = append(peers, at)
			}
		}
	}
	s.BGP.Peers = peers
}
