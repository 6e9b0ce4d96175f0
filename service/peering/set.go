package peering

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Resources is the API's data about the peers of this node.
type Resources struct {
	Peers       []*v1alpha1.BGPPeer // all of them
	Labels      labels.Set          // of this node
	Annotations map[string]string   // of this node, Herald's only
	// Password returns the password in a Secret; see [Secrets.Password].
	Password func(v1alpha1.SecretReference) (string, error)
}

// Set is the peers of a node.
type Set struct {
	// BGP has all peers. Without an ASN there are none.
	BGP bgp.Config
	// resources are the peers from BGPPeers, by the names of the BGPPeers.
	resources map[string]v1alpha1.Peer
	// Names maps the names that address pools use to [v1alpha1.Peer.Name]: a pool refers to a BGPPeer by the resource's
	// name, and to a peer in the file by Peer.Name itself.
	Names map[string]string
	// Gateways maps the names of default gateways to the names of their peers; to itself while there is no gateway.
	Gateways map[string][]string
	// LeftOut are the BGPPeers for this node that are not in force, or not in their present form.
	LeftOut []LeftOut
}

// Called returns the names in BGP of the peers with the given names, which may include keys of [Set.Gateways], in
// order. It returns nil, which means all, for nil.
func (s Set) Called(names []string) []string {
	out := names[:0:0] // nil if names is nil
	for _, name := range names {
		if peers, ok := s.Gateways[name]; ok {
			out = append(out, peers...)
		} else {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ByName maps the names that address pools use to the peers in BGP.
func (s Set) ByName() map[string][]string {
	out := make(map[string][]string)
	for name, peer := range s.Names {
		out[name] = s.Called([]string{peer})
	}
	return out
}

// OneFamily maps the peers with sessions for a single family to that family.
func (s Set) OneFamily() map[string]pool.Family {
	out := make(map[string]pool.Family)
	for _, peer := range s.BGP.Peers {
		switch {
		case peer.Carries(v1alpha1.IPv4) && !peer.Carries(v1alpha1.IPv6):
			out[peer.Name()] = pool.IPv4
		case peer.Carries(v1alpha1.IPv6) && !peer.Carries(v1alpha1.IPv4):
			out[peer.Name()] = pool.IPv6
		}
	}
	return out
}

// LeftOut is a BGPPeer, and in one sentence why it is not in force.
type LeftOut struct {
	Peer   string `json:"peer"`
	Reason string `json:"reason"`
	// unread reports that its Secret has not been read yet, which is usual for a moment.
	unread bool
}

// newSet joins the peers of the file and of the API. An invalid BGPPeer keeps its previous form from running, which
// maps the names of BGPPeers in force to their peers; without one it is left out. Other peers are not affected.
func newSet(c *config.Config, file bgp.Config, api Resources, running map[string]v1alpha1.Peer) Set {
	out := Set{BGP: file, resources: make(map[string]v1alpha1.Peer), Names: make(map[string]string)}
	out.BGP.Peers = slices.Clone(file.Peers)
	owner := make(map[string]string) // the BGPPeer of a peer, by the peer's name; empty for the file
	for _, p := range file.Peers {
		out.Names[p.Name()] = p.Name()
		owner[p.Name()] = ""
	}
	refuse := func(r *v1alpha1.BGPPeer, format string, args ...any) {
		err := fmt.Errorf(format, args...)
		out.LeftOut = append(out.LeftOut, LeftOut{Peer: r.Name, Reason: err.Error(), unread: errors.Is(err, errUnread)})
	}
	for _, r := range slices.SortedFunc(slices.Values(api.Peers), service.Older) {
		if nodes, err := service.SelectorsOf(r.Spec.NodeSelectors); err != nil {
			refuse(r, "nodeSelectors: %w", err)
			continue
		} else if !nodes.Match(api.Labels) {
			continue
		}
		name := r.Spec.Name()
		switch other, taken := owner[name]; {
		case taken && other == "":
			refuse(r, "the file of this node has a peer %s, which takes precedence", name)
			if _, ambiguous := out.Names[r.Name]; !ambiguous {
				out.Names[r.Name] = name
			}
			continue
		case taken:
			refuse(r, "the older BGPPeer %s is for the same router", other)
			continue
		case out.Names[r.Name] != "":
			refuse(r, "the file of this node has a peer of this name: a pool could mean either, so give it another name")
			continue
		}
		peer, err := resourcePeer(c, file.ASN, r, api)
		if err != nil {
			before, runs := running[r.Name]
			if !runs || before.Name() != name {
				refuse(r, "%w", err)
				continue
			}
			refuse(r, "%w; until then the session stays unchanged", err)
			peer = before
		}
		owner[name] = r.Name
		out.Names[r.Name] = name
		out.resources[r.Name] = peer
		out.BGP.Peers = append(out.BGP.Peers, peer)
		out.BGP.ASN = cmp.Or(out.BGP.ASN, uint32(peer.LocalASN))
	}
	return out
}

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
