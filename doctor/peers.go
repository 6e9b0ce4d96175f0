package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examinePeers looks at whether the routers would take a session, or have one.
func examinePeers(c *config.Config, f *facts.Facts, out *findings) {
	if c.BGP == nil {
		return
	}
	severity, why := Blocker, "No peer takes a session: nobody hears of the VIPs."
	for _, p := range c.BGP.Peers {
		if problem, asked := f.Peers[p.Name()]; asked && problem == "" || unnumbered(f, p) {
			severity, why = Warning, "Only the other peers hear of the VIPs."
		}
	}
	for _, p := range c.BGP.Peers {
		subject := fmt.Sprintf("%s AS %v", p.Name(), p.ASN)
		problem, asked := f.Peers[p.Name()]
		switch {
		case asked && problem != "":
			out.add(severity, subject, problem, why+silence(p), cure(c, f, p))
		case asked && f.Running != nil:
			out.fine(subject, "the session is established")
		case asked:
			out.fine(subject, "takes a session")
		case unnumbered(f, p):
			out.fine(subject, "the link is up; who is at its far end is known once Herald runs")
		case p.Interface != "":
			out.add(severity, subject, "the link is down, or there is none", why, "ip link set "+p.Interface+" up")
		}
	}
}

// unnumbered says whether p is an unnumbered peer on a link that is up.
func unnumbered(f *facts.Facts, p v1alpha1.Peer) bool {
	return p.Interface != "" && f.Host.Links[p.Interface].Up
}

// silence says what cannot be told apart where passwords are concerned.
func silence(p v1alpha1.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " A router with another TCP MD5 password, or none, is silent: that cannot be told from a filter, or from no router at all."
}

// cure is where to look for what keeps a session from coming up.
func cure(c *config.Config, f *facts.Facts, p v1alpha1.Peer) string {
	find := fmt.Sprintf("ip route get %s; see that the address in bgp.peers is right", p.Address)
	if p.DefaultGateway != "" {
		find = fmt.Sprintf("ip -%s route show default", strings.TrimPrefix(string(p.DefaultGateway), "ipv"))
	}
	return fmt.Sprintf("%s; then on the router: neighbor %s remote-as %d%s, and TCP port %d open to it", find, sourceFor(f, p), c.BGP.ASN, password(p), p.Port)
}

// sourceFor is the address from which this node speaks to the peer, as far as that is plain.
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

func password(p v1alpha1.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " with the password of " + p.PasswordFile
}

// hasRouter says whether the node has one of the peers' addresses: its router runs here.
func hasRouter(c *config.Config, f *facts.Facts) bool {
	return slices.ContainsFunc(c.BGP.Peers, func(p v1alpha1.Peer) bool {
		_, here := f.Host.Has(p.Address)
		return here || p.Address == netip.IPv6Loopback()
	})
}
