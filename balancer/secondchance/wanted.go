package secondchance

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/netutil/link"
)

// Wanted is what a node is to do.
type Wanted struct {
	Self   Member
	Others []Member // that are alive, whether or not they serve
	// VIPs are those whose packets are passed on. New connections are this node's, unless it is leaving the VIP: then
	// they go on, too. While a VIP is not bound here all goes on.
	VIPs map[netip.Addr]bool
	// Links are those by which routers bring packets. What comes by others, from pods or from this node itself,
	// takes its way as without this package: others could not answer it directly.
	Links []string
}

// ipv6 reports whether there is a VIP of IPv6.
func (w Wanted) ipv6() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.VIPs)), netip.Addr.Is6)
}

// reachable are the addresses of the others that packets may be passed on to, by their numbers.
func (w Wanted) reachable() map[uint16]netip.Addr {
	out := make(map[uint16]netip.Addr)
	for _, m := range w.Others {
		if m.reachableFrom(w.Self) {
			out[uint16(m.Number)] = m.Addr
		}
	}
	return out
}

// lacks is what stands in the way of passing packets on to others; empty if nothing does.
func (w Wanted) lacks() string {
	if len(w.VIPs) == 0 {
		return ""
	}
	var out, silent []string
	if len(w.Links) == 0 {
		out = append(out, "no route leads to a router: packets are known as routers' by their link")
	}
	if len(w.Others) >= most {
		out = append(out, fmt.Sprintf("%d members are more than may pass packets on, %d: set bridge: false on some", len(w.Others)+1, most))
	}
	for _, m := range w.Others {
		switch {
		case m.Number == w.Self.Number:
			out = append(out, m.Name+" has the same number as this node: give one of them another nodeName")
		case !m.reachableFrom(w.Self):
			out = append(out, m.Name+" is at "+m.Addr.String()+", of another family than this node's address")
		case m.Silent:
			silent = append(silent, m.Name)
		}
	}
	if slices.Sort(silent); len(silent) > 0 {
		out = append(out, fmt.Sprintf("no answer by the tunnel from %s: let UDP port %d and fragments through between the members, and all by the link %s", strings.Join(silent, ", "), link.TunnelPort, link.TunnelName))
	}
	return strings.Join(out, "; ")
}
