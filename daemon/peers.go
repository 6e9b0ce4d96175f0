package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/pool"
)

// This file decides which BGP peers a node has: those of its own file, and of the
// BGPPeer resources those that are for it. It is pure.

// named is what is in the API about the peers of this node.
type named struct {
	peers  []*v1alpha1.BGPPeer // all of them
	labels labels.Set          // of this node
	// password reads the one in a Secret.
	password func(v1alpha1.SecretReference) (string, error)
}

// peerSet is the peers of a node.
type peerSet struct {
	// bgp are all of them, for [bgp.Server.Apply]. Without an ASN there are none.
	bgp bgp.Config
	// resources are those that are from BGPPeers, by the names of these.
	resources map[string]bgp.Peer
	// names are the names that address pools use for peers, with those in bgp: of a
	// BGPPeer its own, of a peer in the file its address or interface.
	names map[string]string
	// leftOut are the BGPPeers that are for this node and not, or not as they are
	// now, in force.
	leftOut []leftOut
}

// only are the peers whose sessions carry the routes of one family only.
func (p peerSet) only() map[string]pool.Family {
	out := make(map[string]pool.Family)
	for _, peer := range p.bgp.Peers {
		switch {
		case peer.IPv4 && !peer.IPv6:
			out[peer.Name()] = pool.IPv4
		case peer.IPv6 && !peer.IPv4:
			out[peer.Name()] = pool.IPv6
		}
	}
	return out
}

// leftOut is a BGPPeer and why it is not in force, in one sentence.
type leftOut struct {
	peer, reason string
	// unread says that its Secret is still to be read, as is usual for a moment.
	unread bool
}

// newPeerSet puts the peers in the file of c, as they are in file, and in the API
// together. A BGPPeer that cannot be used as it is now stays as it is in running,
// where the BGPPeers in force are by name, or is left out if it is not there; no
// other is disturbed.
func newPeerSet(c *config.Config, file bgp.Config, api named, running map[string]bgp.Peer) peerSet {
	out := peerSet{bgp: file, resources: make(map[string]bgp.Peer), names: make(map[string]string)}
	out.bgp.Peers = slices.Clone(file.Peers)
	owner := make(map[string]string) // of a peer, by its name: whose it is
	for _, p := range file.Peers {
		out.names[p.Name()] = p.Name()
		owner[p.Name()] = ""
	}
	refuse := func(r *v1alpha1.BGPPeer, format string, args ...any) {
		err := fmt.Errorf(format, args...)
		out.leftOut = append(out.leftOut, leftOut{peer: r.Name, reason: err.Error(), unread: errors.Is(err, errUnread)})
	}
	for _, r := range oldestFirst(api.peers) {
		if ours, err := selects(r.Spec.NodeSelectors, api.labels); err != nil {
			refuse(r, "nodeSelectors: %w", err)
			continue
		} else if !ours {
			continue
		}
		name := nameOf(r)
		switch other, taken := owner[name]; {
		case taken && other == "":
			refuse(r, "the file of this node has a peer %s, which stands for it", name)
			if _, ambiguous := out.names[r.Name]; !ambiguous {
				out.names[r.Name] = name
			}
			continue
		case taken:
			refuse(r, "BGPPeer %s, which is older, is the same router", other)
			continue
		case out.names[r.Name] != "":
			refuse(r, "the file of this node has a peer of this name: a pool could mean either, so give it another name")
			continue
		}
		peer, err := resourcePeer(c, file.ASN, r, api.password)
		if err != nil {
			before, runs := running[r.Name]
			if !runs || before.Name() != name {
				refuse(r, "%w", err)
				continue
			}
			refuse(r, "%w; until then the session stays as it was", err)
			peer = before
		}
		owner[name] = r.Name
		out.names[r.Name] = name
		out.resources[r.Name] = peer
		out.bgp.Peers = append(out.bgp.Peers, peer)
		out.bgp.ASN = cmp.Or(out.bgp.ASN, peer.LocalASN)
	}
	return out
}

// oldestFirst sorts resources by age, and by name if they are of one age.
func oldestFirst(peers []*v1alpha1.BGPPeer) []*v1alpha1.BGPPeer {
	return slices.SortedFunc(slices.Values(peers), func(a, b *v1alpha1.BGPPeer) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// selects reports whether there are no selectors, or one selects.
func selects(selectors []v1alpha1.LabelSelector, of labels.Set) (bool, error) {
	for i := range selectors {
		s, err := selectors[i].Selector()
		if err != nil {
			return false, err
		}
		if s.Matches(of) {
			return true, nil
		}
	}
	return len(selectors) == 0, nil
}

// nameOf is [bgp.Peer.Name] of what r becomes.
func nameOf(r *v1alpha1.BGPPeer) string {
	if addr, err := netip.ParseAddr(r.Spec.Address); err == nil {
		return addr.String()
	}
	return string(r.Spec.Interface)
}

// resourcePeer is r as a peer of a node whose file has the ASN asn, 0 for none. It
// obeys the rules of peers in the file.
func resourcePeer(c *config.Config, asn uint32, r *v1alpha1.BGPPeer, password func(v1alpha1.SecretReference) (string, error)) (bgp.Peer, error) {
	own := asn
	if r.Spec.LocalASN != nil {
		own = uint32(*r.Spec.LocalASN)
	}
	if own == 0 {
		return bgp.Peer{}, errors.New("it has no localASN, and the file of this node no bgp.asn: add one of them")
	}
	written, err := filePeer(&r.Spec)
	if err != nil {
		return bgp.Peer{}, err
	}
	if err := c.CheckPeer(own, &written); err != nil {
		return bgp.Peer{}, err
	}
	if ref := r.Spec.PasswordSecretRef; ref != nil {
		if written.Password, err = password(*ref); err != nil {
			return bgp.Peer{}, err
		}
	}
	peer, err := bgpPeer(written)
	if r.Spec.LocalASN != nil {
		peer.LocalASN = own
	}
	return peer, err
}

// filePeer is a resource as the file would have it, with the defaults that the API
// server sets, should it not have.
func filePeer(s *v1alpha1.BGPPeerSpec) (config.Peer, error) {
	p := config.Peer{
		Interface: string(s.Interface), ASN: uint32(s.ASN), Port: uint16(cmp.Or(s.Port, 179)),
		HoldTime: cmp.Or(s.HoldTime.Duration, 3*time.Second), Multihop: uint8(s.Multihop), TTLSecurity: uint8(s.TTLSecurity),
	}
	for _, a := range []struct {
		field, text string
		to          *netip.Addr
	}{
		{"address", s.Address, &p.Address}, {"localAddress", s.LocalAddress, &p.LocalAddress},
		{"nextHop4", s.NextHop4, &p.NextHop4}, {"nextHop6", s.NextHop6, &p.NextHop6},
	} {
		if a.text == "" {
			continue
		}
		var err error
		if *a.to, err = netip.ParseAddr(a.text); err != nil {
			return p, fmt.Errorf("%s: want an IP address, got %q", a.field, a.text)
		}
	}
	if b := s.BFD; b != nil {
		p.BFD = &config.BFD{
			Interval: cmp.Or(b.Interval.Duration, 50*time.Millisecond), Multiplier: uint8(cmp.Or(b.Multiplier, 3)), Multihop: b.Multihop,
		}
	}
	for _, f := range s.Families {
		p.Families = append(p.Families, config.Family(f))
	}
	p.Attributes = fileAttributes(&s.Attributes)
	return p, nil
}

// fileAttributes are those of a resource as the file would have them.
func fileAttributes(a *v1alpha1.Attributes) config.Attributes {
	out := config.Attributes{Prepend: int(a.Prepend)}
	for _, c := range a.Communities {
		out.Communities = append(out.Communities, string(c))
	}
	for _, c := range a.LargeCommunities {
		out.LargeCommunities = append(out.LargeCommunities, string(c))
	}
	if a.MED != nil {
		out.MED = new(uint32(*a.MED))
	}
	if a.LocalPref != nil {
		out.LocalPref = new(uint32(*a.LocalPref))
	}
	return out
}
