package bgp

import (
	"fmt"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Marks on a route tell the export policy which peers get it. They are large communities of a reserved
// AS number (RFC 7300): no configuration can set them, and the policy removes them before sending. So
// a change of the peers advertised to changes only the route, and a change of the peers only the policy.
const (
	markASN      = v1alpha1.ReservedGlobal
	markFor      = 1 // sent to the peer
	markDraining = 2 // sent to the peer as draining
	everyPeer    = 0 // numbers of peers start at 1
)

// anyMark is a regular expression that matches all marks.
var anyMark = fmt.Sprintf("^%d:", uint32(markASN))

// numbers assigns a number to each peer name that was ever configured.
type numbers map[string]uint32

// learn returns the number of a name, and assigns one to a new name.
func (n numbers) learn(name string) uint32 {
	if _, ok := n[name]; !ok {
		n[name] = uint32(len(n)) + 1
	}
	return n[name]
}

// marks returns the marks of a route. It fails if a peer is unknown.
func (n numbers) marks(r Route) ([]v1alpha1.LargeCommunity, error) {
	var out []v1alpha1.LargeCommunity
	if r.Peers == nil {
		out = append(out, mark(markFor, everyPeer))
	}
	for _, list := range []struct {
		kind  uint32
		names []string
	}{{markFor, r.Peers}, {markFor, r.DrainingPeers}, {markDraining, r.DrainingPeers}} {
		for _, name := range list.names {
			number, ok := n[name]
			if !ok {
				return nil, fmt.Errorf("there is no peer %s", name)
			}
			out = append(out, mark(list.kind, number))
		}
	}
	return out, nil
}

func mark(kind, peer uint32) v1alpha1.LargeCommunity {
	return v1alpha1.LargeCommunity{Global: markASN, Local1: kind, Local2: peer}
}
