package secondchance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/netutil/link"
)

// Wanted is the desired state of a node. Without VIPs nothing is passed on.
type Wanted struct {
	Self   Member
	Others []Member // members that are alive, serving or not
	// VIPs are the addresses to pass misrouted packets on for. If the value is true this node is leaving the VIP, and new
	// connections are passed on too. While a VIP is not bound here, all its packets are.
	VIPs map[netip.Addr]bool
	// Links are the links to routers. Packets that arrive by other links, from pods for instance, are not passed on:
	// another member could not answer them directly.
	Links []string
}

// reachable returns the addresses of the members that packets can be passed on to, by number.
func (w Wanted) reachable() map[uint16]netip.Addr {
	out := make(map[uint16]netip.Addr)
	for _, m := range w.Others {
		if m.reachableFrom(w.Self) {
			out[uint16(m.Number)] = m.Addr
		}
	}
	return out
}

// lacks says why packets cannot be passed on to some members; empty if they can.
func (w Wanted) lacks() string {
	if len(w.VIPs) == 0 {
		return ""
	}
	var out, timedOut []string
	if len(w.Links) == 0 {
		out = append(out, "no route leads to a router: its link tells which packets come from routers")
	}
	if len(w.Others) >= maxMembers {
		out = append(out, fmt.Sprintf("%d members exceed the limit of %d that may pass packets on: set bridge: false on some", len(w.Others)+1, maxMembers))
	}
	for _, m := range w.Others {
		switch {
		case m.Number == w.Self.Number:
			out = append(out, m.Name+" has the same number as this node: give one of them another nodeName")
		case !m.reachableFrom(w.Self):
			out = append(out, m.Name+" is at "+m.Addr.String()+", of another family than this node's address")
		case m.TimedOut:
			timedOut = append(timedOut, m.Name)
		}
	}
	if slices.Sort(timedOut); len(timedOut) > 0 {
		out = append(out, fmt.Sprintf("no answer by the tunnel from %s: let UDP port %d and fragments through between the members, and all by the link %s", strings.Join(timedOut, ", "), link.TunnelPort, link.TunnelName))
	}
	return strings.Join(out, "; ")
}
