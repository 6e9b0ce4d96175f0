package peering

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Resources is what the API has about the peers of this node.
type Resources struct {
	Peers       []*v1alpha1.BGPPeer // all of them
	Labels      labels.Set          // of this node
	Annotations map[string]string   // of this node, as far as they are Herald's
	// Password reads the one in a Secret; see [Secrets.Password].
	Password func(v1alpha1.SecretReference) (string, error)
}

// Set is the peers of a node.
type Set struct {
	// BGP has all of them. Without an ASN there are none.
	BGP bgp.Config
	// resources are those that are from BGPPeers, by the names of these.
	resources map[string]v1alpha1.Peer
	// Names are the names that address pools use for peers, with those in BGP: of a
	// BGPPeer its own, of a peer in the file [v1alpha1.Peer.Name].
	Names map[string]string
	// Gateways are the peers that are default gateways, by [v1alpha1.Peer.Gateway]; one that waits for a gateway if there is none.
	Gateways map[string][]string
	// LeftOut are the BGPPeers that are for this node and not, or not as they are
	// now, in force.
	LeftOut []LeftOut
}

// Called are the names in BGP of the peers with the given names, among which there may be those of [Set.Gateways], in
// order; nil, which stands for all, is what it is.
func (s Set) Called(names []string) []string {
	out := names[:0:0] // nil if names is
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

// ByName has, by the names that address pools use, the peers in BGP.
func (s Set) ByName() map[string][]string {
	out := make(map[string][]string)
	for name, peer := range s.Names {
		out[name] = s.Called([]string{peer})
	}
	return out
}

// OneFamily has the peers whose sessions carry the routes of one family only.
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

// LeftOut is a BGPPeer and why it is not in force, in one sentence.
type LeftOut struct {
	Peer   string `json:"peer"`
	Reason string `json:"reason"`
	// unread says that its Secret is still to be read, as is usual for a moment.
	unread bool
}

// newSet joins the peers in the file of c, as they are in file, and those in the API. A BGPPeer that cannot be used as it is now stays as it is in running,
// where the BGPPeers in force are by name, or is left out if it is not there; no
// other is disturbed.
func newSet(c *config.Config, file bgp.Config, api Resources, running map[string]v1alpha1.Peer) Set {
	out := Set{BGP: file, resources: make(map[string]v1alpha1.Peer), Names: make(map[string]string)}
	out.BGP.Peers = slices.Clone(file.Peers)
	owner := make(map[string]string) // of a peer, by its name: whose it is
	for _, p := range file.Peers {
		out.Names[p.Name()] = p.Name()
		owner[p.Name()] = ""
	}
	refuse := func(r *v1alpha1.BGPPeer, format string, args ...any) {
		err := fmt.Errorf(format, args...)
		out.LeftOut = append(out.LeftOut, LeftOut{Peer: r.Name, Reason: err.Error(), unread: errors.Is(err, errUnread)})
	}
	for _, r := range oldestFirst(api.Peers) {
		if nodes, err := service.SelectorsOf(r.Spec.NodeSelectors); err != nil {
			refuse(r, "nodeSelectors: %w", err)
			continue
		} else if !nodes.Match(api.Labels) {
			continue
		}
		name := r.Spec.Name()
		switch other, taken := owner[name]; {
		case taken && other == "":
			refuse(r, "the file of this node has a peer %s, which stands for it", name)
			if _, ambiguous := out.Names[r.Name]; !ambiguous {
				out.Names[r.Name] = name
			}
			continue
		case taken:
			refuse(r, "BGPPeer %s, which is older, is the same router", other)
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
			refuse(r, "%w; until then the session stays as it was", err)
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

// oldestFirst sorts resources by age, and by name if they are of one age.
func oldestFirst(peers []*v1alpha1.BGPPeer) []*v1alpha1.BGPPeer {
	return slices.SortedFunc(slices.Values(peers), func(a, b *v1alpha1.BGPPeer) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}
