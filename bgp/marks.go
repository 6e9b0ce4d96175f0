package bgp

import (
	"fmt"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Whom a route is for is told to the export policy by marks on the route:
// large communities of a reserved AS number (RFC 7300), which no configuration
// can set and which are taken off before anything is sent. So a route's
// audience changes with the route alone, and the policy with the peers alone.
const (
	markASN     = v1alpha1.ReservedGlobal
	markFor     = 1 // to be sent to the peer
	markLeaving = 2 // to be sent to the peer as about to go
	everyPeer   = 0 // numbers of peers start at 1
)

// anyMark is a regular expression that matches all marks.
var anyMark = fmt.Sprintf("^%d:", uint32(markASN))

// numbers give each peer name that was ever configured a number.
type numbers map[string]uint32

// learn is the number of a name, which gets one if it has none yet.
func (n numbers) learn(name string) uint32 {
	if _, ok := n[name]; !ok {
		n[name] = uint32(len(n)) + 1
	}
	return n[name]
}

// marks are those of a route.
func (n numbers) marks(r Route) ([]v1alpha1.LargeCommunity, error) {
	var out []v1alpha1.LargeCommunity
	if r.Peers == nil {
		out = append(out, mark(markFor, everyPeer))
	}
	for _, list := range []struct {
		kind  uint32
		names []string
	}{{markFor, r.Peers}, {markFor, r.Leaving}, {markLeaving, r.Leaving}} {
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
