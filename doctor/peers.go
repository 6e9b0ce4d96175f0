package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/herald-vip/herald/config"
)

// examinePeers looks at whether the routers would take a session, or have one.
func examinePeers(c *config.Config, f *Facts) []Finding {
	const topic = "peer"
	if c.BGP == nil {
		return nil
	}
	var out []Finding
	severity, why := Blocker, "No peer takes a session: nobody hears of the VIPs."
	for _, p := range c.BGP.Peers {
		if problem, asked := f.Peers[p.Name()]; asked && problem == "" || f.unnumbered(p) {
			severity, why = Warning, "Only the other peers hear of the VIPs."
		}
	}
	for _, p := range c.BGP.Peers {
		subject := fmt.Sprintf("%s AS %d", p.Name(), p.ASN)
		problem, asked := f.Peers[p.Name()]
		switch {
		case asked && problem != "":
			out = append(out, Finding{severity, topic, subject, problem, why + silence(p), f.cure(c, p, problem)})
		case asked && f.Running != nil:
			out = append(out, fine(topic, subject, "the session is established"))
		case asked:
			out = append(out, fine(topic, subject, "takes a session"))
		case f.unnumbered(p):
			out = append(out, fine(topic, subject, "the link is up; who is at its far end is known once Herald runs"))
		case p.Interface != "":
			out = append(out, Finding{severity, topic, subject, "the link is down, or there is none", why, "ip link set " + p.Interface + " up"})
		}
	}
	return out
}

// unnumbered says whether p is an unnumbered peer on a link that is up.
func (f *Facts) unnumbered(p config.Peer) bool {
	return p.Interface != "" && f.Host.Links[p.Interface].Up
}

// silence says what cannot be told apart where passwords are concerned.
func silence(p config.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " A router with another TCP MD5 password, or none, is silent: that cannot be told from a filter, or from no router at all."
}

// cure is where to look for what keeps a session from coming up.
func (f *Facts) cure(c *config.Config, p config.Peer, problem string) string {
	if strings.Contains(problem, " is unreachable: ") {
		return fmt.Sprintf("ip route get %s; see that the address in bgp.peers is right, and that the router is up", p.Address)
	}
	return fmt.Sprintf("on the router: neighbor %s remote-as %d%s, and TCP port %d open to it", f.sourceFor(p), c.BGP.ASN, password(p), p.Port)
}

// sourceFor is the address from which this node speaks to the peer, as far as that is plain.
func (f *Facts) sourceFor(p config.Peer) string {
	if p.LocalAddress.IsValid() {
		return p.LocalAddress.String()
	}
	if link, err := f.Host.LinkFor(p.Address); err == nil {
		for _, a := range f.Host.Addresses {
			if a.Link == link && a.Prefix.Contains(p.Address) {
				return a.Prefix.Addr().String()
			}
		}
	}
	return "ADDRESS OF THIS NODE"
}

func password(p config.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " with the password of " + p.PasswordFile
}

// local says whether the node has one of the peers' addresses: its router runs here.
func (f *Facts) local(c *config.Config) bool {
	for _, p := range c.BGP.Peers {
		if _, here := f.Host.Has(p.Address); here || p.Address == netip.IPv6Loopback() {
			return true
		}
	}
	return false
}
