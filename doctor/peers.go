package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/netutil/link"
)

// examinePeers examines whether the routers accept a session, or have one.
func examinePeers(c *config.Config, f *facts.Facts, out *findings) {
	if c.BGP == nil {
		return
	}
	severity, why := Blocker, "No peer accepts a session: no router learns the VIPs."
	for _, p := range c.BGP.Peers {
		if problem, asked := f.Peers[p.Name()]; asked && problem == "" || unnumbered(f, p) {
			severity, why = Warning, "Only the other peers learn the VIPs."
		}
	}
	for _, p := range c.BGP.Peers {
		subject := fmt.Sprintf("%s AS %v", p.Name(), p.ASN)
		problem, asked := f.Peers[p.Name()]
		switch {
		case asked && problem != "":
			silence := ""
			if p.Password != "" {
				silence = " A router with another TCP MD5 password, or none, is as silent as a filter or a missing router."
			}
			out.add(severity, subject, problem, why+silence, cure(c, f, p))
		case asked && f.Running != nil:
			out.fine(subject, "the session is established")
		case asked:
			out.fine(subject, "accepts a session")
		case unnumbered(f, p):
			out.fine(subject, "the link is up; its far end is known once Herald runs")
		case p.Interface != "":
			out.add(severity, subject, "the link is down, or there is none", why, "ip link set "+p.Interface+" up")
		}
	}
}

// unnumbered reports whether p is an unnumbered peer on a link that is up.
func unnumbered(f *facts.Facts, p v1alpha1.Peer) bool {
	return p.Interface != "" && f.Host.Links[p.Interface].Up
}

// cure returns commands that find the cause of a missing session with p.
func cure(c *config.Config, f *facts.Facts, p v1alpha1.Peer) string {
	find := fmt.Sprintf("ip route get %s; check the address in bgp.peers", p.Address)
	if p.DefaultGateway != "" {
		find = fmt.Sprintf("ip -%s route show default", strings.TrimPrefix(string(p.DefaultGateway), "ipv"))
	}
	password := ""
	if p.Password != "" {
		password = " with the password of " + p.PasswordFile
	}
	return fmt.Sprintf("%s; then on the router: neighbor %s remote-as %d%s, and TCP port %d open to it", find, sourceFor(f, p), c.BGP.ASN, password, p.Port)
}

// sourceFor returns the source address of a session with p, or a placeholder if it is unknown.
func sourceFor(f *facts.Facts, p v1alpha1.Peer) string {
	if p.LocalAddress.IsValid() {
		return p.LocalAddress.String()
	}
	if link, err := f.Host.For(p.Address); err == nil {
		for _, a := range f.Host.Addresses {
			if a.Link == link && a.Prefix.Contains(p.Address) {
				return a.Prefix.Addr().String()
			}
		}
	}
	return "ADDRESS OF THIS NODE"
}

// examinePorts examines whether Herald can open its ports.
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
			out.fine(subject, "Herald's own link "+link.TunnelName+" has it")
		case errors.Is(err, syscall.EADDRINUSE) && (f.Running != nil || stuck(f)) && owner.Program == "herald":
			out.fine(subject, fmt.Sprintf("Herald's own, process %d", owner.PID))
		case errors.Is(err, syscall.EADDRINUSE) && f.Running != nil && owner.PID == 0:
			out.fine(subject, "in use, and Herald runs; its owner is not visible from here")
		case errors.Is(err, syscall.EADDRINUSE) && p.Use == "second chance":
			out.warning(subject, "in use by "+owner.String(), without(p.Use), "stop that program, as this port cannot be changed: ss -lnp 'sport = :"+strconv.Itoa(int(p.Local.Port()))+"'")
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

// without returns the consequence of a port that cannot be opened.
func without(use string) string {
	switch use {
	case "gossip":
		return "Herald takes no part in the election, and holds no VIP."
	case "BFD":
		return "A dead router is noticed only after the hold time."
	case "metrics":
		return "Herald does not start."
	case "second chance":
		return "Connections that routers move to another master are reset there, not passed on."
	case "balancer":
		return "The balancer takes no connections there."
	}
	return "Peers cannot open sessions to this node."
}

// examineOwnAddresses checks that this node has its own addresses in the file.
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
		if !c.Election.Open() && c.Election.Bind == c.Election.Members[c.NodeName] { // the default
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
		out.blocker("bgp.routerID", "this node has no global IPv4 address to take it from", "Herald does not start.", "set bgp.routerID to an IPv4 address that no other router uses")
	}
}
