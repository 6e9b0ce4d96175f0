package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/link"
)

// examinePorts looks at whether Herald can open its ports.
func examinePorts(c *config.Config, f *facts.Facts, out *findings) {
	tunnel := f.Host.Links[link.TunnelName]
	for _, p := range facts.Ports(c) {
		subject := fmt.Sprintf("%s %s/%s", p.Use, p.Local, p.Network)
		err, tried := f.Ports[p]
		switch owner := f.Owner(p); {
		case !tried:
		case err == nil:
			out.fine(subject, "free")
		case p.Use == "second chance" && tunnel.Kind == "vxlan" && tunnel.Up:
			out.fine(subject, "the link "+link.TunnelName+" has it, which is Herald's")
		case errors.Is(err, syscall.EADDRINUSE) && (f.Running != nil || stuck(f)) && owner.Program == "herald":
			out.fine(subject, fmt.Sprintf("Herald's own, process %d", owner.PID))
		case errors.Is(err, syscall.EADDRINUSE) && f.Running != nil && owner.PID == 0:
			out.fine(subject, "in use, and Herald runs; whose it is cannot be seen from here")
		case errors.Is(err, syscall.EADDRINUSE) && p.Use == "second chance":
			out.warning(subject, "in use by "+owner.String(), without(p.Use), "stop that program, as no other port will do: ss -lnp 'sport = :"+strconv.Itoa(int(p.Local.Port()))+"'")
		case errors.Is(err, syscall.EADDRINUSE):
			out.blocker(subject, "in use by "+owner.String(), without(p.Use),
				"stop that program, or choose another port: ss -lnp 'sport = :"+strconv.Itoa(int(p.Local.Port()))+"'")
		case errors.Is(err, syscall.EACCES):
			out.blocker(subject, "this process may not open it", without(p.Use), "run as root, or grant CAP_NET_BIND_SERVICE")
		default:
			out.warning(subject, "cannot be opened: "+err.Error(), without(p.Use), "choose another address or port")
		}
	}
}

// without says what does not work without a port.
func without(use string) string {
	switch use {
	case "gossip":
		return "Herald takes no part in the election, and holds no VIP."
	case "BFD":
		return "A dead router is noticed when the hold time has run out, not before."
	case "metrics":
		return "Herald does not start."
	case "second chance":
		return "Connections that routers bring to another master are reset there, not passed on."
	case "balancer":
		return "The balancer takes no connections there."
	}
	return "Peers cannot open sessions to this node."
}

// examineOwnAddresses looks for addresses that the file says are this node's.
func examineOwnAddresses(c *config.Config, f *facts.Facts, out *findings) {
	if f.HostError != nil {
		return
	}
	missing := func(field string, addr netip.Addr, why string) {
		if _, ok := f.Host.Has(addr.WithZone("")); !ok && addr.IsValid() && !addr.IsUnspecified() {
			out.blocker(field+" "+addr.String(), "no link of this node has it", why, "ip address; then correct "+field)
		}
	}
	if c.Election != nil {
		field := "election.bind"
		if !c.Election.Open() && c.Election.Bind == c.Election.Members[c.NodeName] { // as it is by default
			field = "election.members." + c.NodeName
		}
		missing(field, c.Election.Bind.Addr(), "The other members' votes do not arrive here.")
	}
	if c.BGP == nil {
		return
	}
	for _, p := range c.BGP.Peers {
		missing("localAddress", p.LocalAddress, "The session with "+p.Name()+" cannot be opened from it.")
	}
	if c.BGP.Listen != nil {
		for _, addr := range c.BGP.Listen.Addresses {
			missing("bgp.listen", addr, "No peer can reach it.")
		}
	}
	if f.RouterIDError != nil {
		out.blocker("bgp.routerID", "this node has no global IPv4 address to take it from", "Herald does not start.", "bgp: {routerID: 192.0.2.1}, with a number that no other router has")
	}
}
