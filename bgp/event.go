package bgp

import (
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// stateOf returns the state for one of GoBGP's.
func stateOf(s packet.FSMState) State {
	switch s {
	case packet.BGP_FSM_ESTABLISHED:
		return Established
	case packet.BGP_FSM_OPENCONFIRM:
		return OpenConfirm
	case packet.BGP_FSM_OPENSENT:
		return OpenSent
	case packet.BGP_FSM_ACTIVE, packet.BGP_FSM_CONNECT:
		return Active
	}
	return Idle
}

// offers are the capabilities in a peer's OPEN. Without capabilities of families it implies IPv4 (RFC 4760 section 8).
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

// explainEnd explains why an established session ended.
func explainEnd(e apiutil.PeerState) string {
	switch e.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_READ_FAILED:
		return "the peer closed the connection"
	case api.PeerState_DISCONNECT_REASON_WRITE_FAILED:
		return "cannot write to the connection"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "hold timer expired: no message from the peer"
	}
	return nameCease(e.DisconnectMessage)
}

// nameCease names the subcodes of Cease that GoBGP does not know, of RFC 8538 and RFC 9384.
func nameCease(said string) string {
	const cease = "code 6(cease) subcode "
	return strings.NewReplacer(cease+"9(undefined)", cease+"9(hard reset)", cease+"10(undefined)", cease+"10(bfd down)").Replace(said)
}
