package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
)

// examineBalancers looks at where balancers listen, and at whom they lead to.
func examineBalancers(c *config.Config, f *facts.Facts, out *findings) {
	if c.LoadBalancer.Type != config.Internal {
		return
	}
	for _, b := range c.Balancers {
		for _, p := range c.Places(b) {
			if b.Mode == balancer.Kernel {
				examinePlace(b, p, f, out)
			}
		}
		examineBackends(b, f, out)
	}
}

// examineKernel looks at what balancers in the kernel need: nftables and the table of connections.
func examineKernel(c *config.Config, f *facts.Facts, out *findings) {
	const subject, conntrack = "balancing", "net/netfilter/nf_conntrack_max"
	const why = "Balancers in the kernel take no connections."
	if len(facts.Places(c, balancer.Kernel)) == 0 {
		return
	}
	switch err := f.BalancingError; {
	case f.Running != nil: // which says of each balancer what is in its way
	case errors.Is(err, nft.ErrUnsupported):
		out.blocker(subject, err.Error(), why, "modprobe -a nf_tables nf_nat nf_conntrack, and run as root; or mode: proxy")
	case err != nil:
		out.warning(subject, "cannot be tried: "+err.Error(), why, "run herald doctor as root")
	default:
		out.fine(subject, "the kernel has all that it needs of nftables and conntrack")
	}
	room, err := strconv.Atoi(f.Settings[conntrack])
	used, err2 := strconv.Atoi(f.Settings["net/netfilter/nf_conntrack_count"])
	seen := fmt.Sprintf("%d, and %s", room, count(used, "connection"))
	switch {
	case err != nil || err2 != nil || room == 0: // it is loaded with the first rule that needs it
	case used < room*3/4:
		out.fine(dotted(conntrack), seen)
	default:
		out.warning(dotted(conntrack), seen,
			"When the table is full the kernel drops packets of new connections, balanced or not.",
			fmt.Sprintf("sysctl -w %s=%d, and see who has that many: conntrack -L", dotted(conntrack), 4*room))
	}
}

// examineForwarding is about the connections of others, which come by an address of the node.
func examineForwarding(c *config.Config, f *facts.Facts, out *findings) {
	if f.Running != nil {
		return
	}
	for _, family := range []struct {
		setting string
		is      func(netip.Addr) bool
	}{
		{"net/ipv4/ip_forward", netip.Addr.Is4},
		{"net/ipv6/conf/all/forwarding", netip.Addr.Is6},
	} {
		needed := slices.ContainsFunc(facts.Places(c, balancer.Kernel), func(p config.Place) bool {
			return family.is(p.Addr()) && !p.Addr().IsLoopback()
		})
		switch {
		case !needed || f.Settings[family.setting] != "0":
		case family.is(netip.IPv4Unspecified()) || !f.ReadOnlySettings:
			out.fine(dotted(family.setting), "0, and Herald lets connections through where it has to")
		default:
			out.warning(dotted(family.setting), "0, and /proc/sys cannot be written",
				"Connections of others than this node's own clients do not get through to backends.", "sysctl -w "+dotted(family.setting)+"=1 on the host")
		}
	}
}

// examinePlace looks for others that have what a balancer listens at.
func examinePlace(b balancer.Config, p config.Place, f *facts.Facts, out *findings) {
	const ipvs = "kube-ipvs0"
	subject := b.Name + " " + p.String()
	if owner := f.Owner(facts.Port{Use: "balancer", Network: "tcp", Local: p.AddrPort}); owner.Local.IsValid() && !(p.VIP != "" && servesItself(b, p)) {
		out.warning(subject, "a server listens there, too: "+owner.String(),
			"While a backend serves, new connections go past that server; when none does, they go to it.",
			fmt.Sprintf("have it listen at another port, or stop it: ss -ltnp 'sport = :%d'", p.Port()))
	}
	if f.HostError != nil || p.VIP != "" { // of which examineVIPs tells
		return
	}
	link, there := f.Host.Has(p.Addr())
	switch {
	case !there && !p.Addr().IsLoopback():
		out.warning(subject, "no link of this node has "+p.Addr().String(),
			"Nobody but the node's own clients gets here by it.", "ip address; then correct balancers[].listen")
	case link == ipvs:
		out.warning(subject, "kube-proxy in IPVS mode has the address on "+ipvs,
			"It is a Service's: of its ports Herald takes the one, and kube-proxy the others.", "kubectl get services -A | grep "+p.Addr().String()+"; listen at another address")
	}
}

// servesItself says whether a server at p may be one of the balancer's own backends, which is
// where it is to be if it listens at all addresses.
func servesItself(b balancer.Config, p config.Place) bool {
	switch {
	case b.Backends.Members != nil:
		return b.Backends.Members.Port == p.Port()
	case b.Backends.Static != nil:
		return slices.ContainsFunc(b.Backends.Static.Addresses, func(at netip.AddrPort) bool { return at.Port() == p.Port() })
	}
	return b.Backends.DNS != nil && b.Backends.DNS.Port == p.Port()
}

// examineBackends says who would take connections.
func examineBackends(b balancer.Config, f *facts.Facts, out *findings) {
	all := f.Backends[b.Name]
	if err := all.Err; err != nil {
		out.warning(b.Name, err.Error(), "Connections are refused, unless Herald knows of backends from before.", "herald status; for a name: getent ahosts "+name(b))
	}
	severity, why := Warning, "It takes no connections of the balancer."
	if !slices.ContainsFunc(all.Backends, func(k facts.Backend) bool { return k.Serves }) {
		why = "No backend serves: connections are refused."
		if f.Running != nil {
			severity = Blocker
		}
	}
	for _, k := range all.Backends {
		subject := b.Name + " " + k.Name
		if k.Name != k.Address.String() {
			subject += " " + k.Address.String()
		}
		if k.Serves {
			out.fine(subject, k.Reason)
		} else {
			out.add(severity, subject, k.Reason, why, "see that the server runs, and listens at that address and not at 127.0.0.1 alone")
		}
	}
}

// name is the DNS name of a balancer's backends.
func name(b balancer.Config) string {
	if b.Backends.DNS == nil {
		return b.Name
	}
	return b.Backends.DNS.Name
}
