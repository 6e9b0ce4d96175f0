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
			out.add(severity, subject, problem, why+silence(p), cure(c, f, p))
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

// silence explains the silence of a peer with a password; empty for one without.
func silence(p v1alpha1.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " A router with another TCP MD5 password, or none, is as silent as a filter or a missing router."
}

// cure returns commands that find the cause of a missing session with p.
func cure(c *config.Config, f *facts.Facts, p v1alpha1.Peer) string {
	find := fmt.Sprintf("ip route get %s; check the address in bgp.peers", p.Address)
	if p.DefaultGateway != "" {
		find = fmt.Sprintf("ip -%s route show default", strings.TrimPrefix(string(p.DefaultGateway), "ipv"))
	}
	return fmt.Sprintf("%s; then on the router: neighbor %s remote-as %d%s, and TCP port %d open to it", find, sourceFor(f, p), c.BGP.ASN, password(p), p.Port)
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

func password(p v1alpha1.Peer) string {
	if p.Password == "" {
		return ""
	}
	return " with the password of " + p.PasswordFile
}

// hasRouter reports whether this node has the address of a peer: that router runs here.
func hasRouter(c *config.Config, f *facts.Facts) bool {
	return slices.ContainsFunc(c.BGP.Peers, func(p v1alpha1.Peer) bool {
		_, here := f.Host.Has(p.Address)
		return here || p.Address == netip.IPv6Loopback()
	})
}
