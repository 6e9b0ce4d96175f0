package bgp

import (
	"net/netip"
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// event is a change that GoBGP reports of one peer.
type event struct {
	addr   netip.Addr
	state  State
	offers offers // once established
	ended  api.PeerState_DisconnectReason
	detail string // of ended
}

func newEvent(p apiutil.Peer) event {
	e := event{
		addr:   p.State.NeighborAddress,
		ended:  p.State.DisconnectReason,
		detail: p.State.DisconnectMessage,
	}
	switch p.State.SessionState {
	case packet.BGP_FSM_ESTABLISHED:
		e.state = Established
	case packet.BGP_FSM_OPENCONFIRM:
		e.state = OpenConfirm
	case packet.BGP_FSM_OPENSENT:
		e.state = OpenSent
	case packet.BGP_FSM_ACTIVE, packet.BGP_FSM_CONNECT:
		e.state = Active
	default:
		e.state = Idle
	}
	e.offers = offersOf(p.State.RemoteCap)
	return e
}

// offers are what a peer's OPEN says that it takes. IPv4 goes without saying if it says
// nothing of families (RFC 4760 section 8).
type offers struct {
	ipv4, ipv6 bool
	extended4  bool // IPv4 routes with an IPv6 next hop (RFC 8950)
}

func offersOf(capabilities []packet.ParameterCapabilityInterface) offers {
	o, says := offers{}, false
	for _, c := range capabilities {
		switch c := c.(type) {
		case *packet.CapMultiProtocol:
			says = true
			o.ipv4 = o.ipv4 || c.CapValue == packet.RF_IPv4_UC
			o.ipv6 = o.ipv6 || c.CapValue == packet.RF_IPv6_UC
		case *packet.CapExtendedNexthop:
			for _, t := range c.Tuples {
				o.extended4 = o.extended4 || t.NLRIAFI == packet.AFI_IP && t.NexthopAFI == packet.AFI_IP6
			}
		}
	}
	o.ipv4 = o.ipv4 || !says
	return o
}

// explainEnd says in words why an established session ended.
func explainEnd(e event) string {
	switch e.ended {
	case api.PeerState_DISCONNECT_REASON_READ_FAILED:
		return "the peer closed the connection"
	case api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "the peer does not take what is sent"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "nothing was heard from the peer for the hold time"
	}
	return nameCease(e.detail)
}

// nameCease puts into words the subcodes of Cease that GoBGP has none for: those of RFC 8538 and RFC 9384.
func nameCease(said string) string {
	const cease = "code 6(cease) subcode "
	return strings.NewReplacer(cease+"9(undefined)", cease+"9(hard reset)", cease+"10(undefined)", cease+"10(bfd down)").Replace(said)
}
