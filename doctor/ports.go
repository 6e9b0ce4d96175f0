package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/herald-vip/herald/config"
)

// ports are those that Herald opens with c, each once.
func ports(c *config.Config) []Port {
	var out []Port
	add := func(p Port) {
		if p.Local.IsValid() && p.Local.Port() != 0 && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if c.Election != nil {
		add(Port{"gossip", "tcp", c.Election.Bind})
		add(Port{"gossip", "udp", c.Election.Bind})
	}
	if host, port, err := net.SplitHostPort(c.Metrics.Listen); err == nil {
		n, _ := strconv.ParseUint(port, 10, 16)
		addr, _ := netip.ParseAddr(cmp.Or(host, "::"))
		add(Port{"metrics", "tcp", netip.AddrPortFrom(addr, uint16(n))})
	}
	for _, b := range c.Balancers {
		for _, p := range places(c, b) {
			if b.Mode == config.Proxy && balances(c) {
				add(Port{"balancer", "tcp", p.AddrPort})
			}
		}
	}
	if c.BGP == nil {
		return out
	}
	if l := c.BGP.Listen; l != nil {
		for _, addr := range l.Addresses {
			add(Port{"BGP", "tcp", netip.AddrPortFrom(addr, l.Port)})
		}
		if len(l.Addresses) == 0 {
			add(Port{"BGP", "tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), l.Port)})
		}
	}
	for _, p := range c.BGP.Peers {
		if p.BFD == nil {
			continue
		}
		addr, port := netip.IPv6Unspecified(), uint16(3784) // RFC 5881, section 4
		if p.Address.Is4() {
			addr = netip.IPv4Unspecified()
		}
		if *p.BFD.Multihop {
			port = 4784 // RFC 5883, section 5
		}
		add(Port{"BFD", "udp", netip.AddrPortFrom(addr, port)})
	}
	return out
}

// examinePorts looks at whether Herald can open its ports and has the addresses it is to use.
func examinePorts(c *config.Config, f *Facts) []Finding {
	const topic = "port"
	var out []Finding
	for _, p := range ports(c) {
		subject := fmt.Sprintf("%s %s/%s", p.Use, p.Local, p.Network)
		err, tried := f.Ports[p]
		switch owner := f.owner(p); {
		case !tried:
		case err == nil:
			out = append(out, fine(topic, subject, "free"))
		case errors.Is(err, syscall.EADDRINUSE) && (f.Running != nil || f.stuck()) && owner.Program == "herald":
			out = append(out, fine(topic, subject, fmt.Sprintf("Herald's own, process %d", owner.PID)))
		case errors.Is(err, syscall.EADDRINUSE) && f.Running != nil && owner.PID == 0:
			out = append(out, fine(topic, subject, "in use, and Herald runs; whose it is cannot be seen from here"))
		case errors.Is(err, syscall.EADDRINUSE):
			out = append(out, blocker(topic, subject, "in use by "+owner.String(), without(p.Use),
				"stop that program, or choose another port: ss -lnp 'sport = :"+strconv.Itoa(int(p.Local.Port()))+"'"))
		case errors.Is(err, syscall.EACCES):
			out = append(out, blocker(topic, subject, "this process may not open it", without(p.Use), "run as root, or grant CAP_NET_BIND_SERVICE"))
		default:
			out = append(out, warning(topic, subject, "cannot be opened: "+err.Error(), without(p.Use), "choose another address or port"))
		}
	}
	return append(out, examineOwnAddresses(c, f)...)
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
	case "balancer":
		return "The balancer takes no connections there."
	}
	return "Peers cannot open sessions to this node."
}

// examineOwnAddresses looks for addresses that the file says are this node's.
func examineOwnAddresses(c *config.Config, f *Facts) []Finding {
	const topic = "port"
	if f.HostError != nil {
		return nil
	}
	var out []Finding
	missing := func(field string, addr netip.Addr, why string) {
		if _, ok := f.Host.Has(addr.WithZone("")); !ok && addr.IsValid() && !addr.IsUnspecified() {
			out = append(out, blocker(topic, field+" "+addr.String(), "no link of this node has it", why, "ip address; then correct "+field))
		}
	}
	if c.Election != nil {
		field := "election.bind"
		if c.Election.Bind == c.Election.Members[c.NodeName] { // as it is by default
			field = "election.members." + c.NodeName
		}
		missing(field, c.Election.Bind.Addr(), "The other members' votes do not arrive here.")
	}
	if c.BGP == nil {
		return out
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
		out = append(out, blocker(topic, "bgp.routerID", "this node has no global IPv4 address to take it from", "Herald does not start.", "bgp: {routerID: 192.0.2.1}, with a number that no other router has"))
	}
	return out
}

// owner is who listens on a port, as far as that can be seen.
func (f *Facts) owner(p Port) Socket {
	for _, s := range f.Sockets {
		if s.Network == p.Network && s.Local.Port() == p.Local.Port() &&
			(s.Local.Addr() == p.Local.Addr() || s.Local.Addr().IsUnspecified() || p.Local.Addr().IsUnspecified()) {
			return s
		}
	}
	return Socket{}
}

// String names the owner of the socket.
func (s Socket) String() string {
	if s.PID == 0 {
		return "a program that cannot be seen from here"
	}
	return fmt.Sprintf("%s, process %d", s.Program, s.PID)
}
