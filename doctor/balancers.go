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

// examineBalancers examines the listen addresses and backends of balancers.
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

// examineKernel examines nftables and conntrack, which kernel balancers need.
func examineKernel(c *config.Config, f *facts.Facts, out *findings) {
	const subject, conntrack = "balancing", "net/netfilter/nf_conntrack_max"
	const why = "Balancers in the kernel take no connections."
	if len(facts.Places(c, balancer.Kernel)) == 0 {
		return
	}
	switch err := f.BalancingError; {
	case f.Running != nil: // its status has each balancer's error
	case errors.Is(err, nft.ErrUnsupported):
		out.blocker(subject, err.Error(), why, "modprobe -a nf_tables nf_nat nf_conntrack, and run as root; or mode: proxy")
	case err != nil:
		out.warning(subject, "cannot be tested: "+err.Error(), why, "run herald doctor as root")
	default:
		out.fine(subject, "the kernel supports all required features of nftables and conntrack")
	}
	room, err := strconv.Atoi(f.Settings[conntrack])
	used, err2 := strconv.Atoi(f.Settings["net/netfilter/nf_conntrack_count"])
	seen := fmt.Sprintf("%d, with %s", room, count(used, "connection"))
	switch {
	case err != nil || err2 != nil || room == 0: // the first rule that needs conntrack loads it
	case used < room*3/4:
		out.fine(dotted(conntrack), seen)
	default:
		out.warning(dotted(conntrack), seen,
			"When the table is full, the kernel drops packets of new connections, balanced or not.",
			fmt.Sprintf("sysctl -w %s=%d; conntrack -L lists the connections", dotted(conntrack), 4*room))
	}
}

// examineForwarding examines IP forwarding, which connections from other hosts to kernel balancers need.
func examineForwarding(c *config.Config, f *facts.Facts, out *findings) {
	if f.Running != nil {
		return
	}
	for _, family := range []struct {
		setting string
		present func(netip.Addr) bool
	}{
		{"net/ipv4/ip_forward", netip.Addr.Is4},
		{"net/ipv6/conf/all/forwarding", netip.Addr.Is6},
	} {
		needed := slices.ContainsFunc(facts.Places(c, balancer.Kernel), func(p config.Place) bool {
			return family.present(p.Addr()) && !p.Addr().IsLoopback()
		})
		switch {
		case !needed || f.Settings[family.setting] != "0":
		case family.present(netip.IPv4Unspecified()) || !f.ReadOnlySettings:
			out.fine(dotted(family.setting), "0, and Herald turns forwarding on where it needs it")
		default:
			out.warning(dotted(family.setting), "0, and /proc/sys cannot be written",
				"Connections from other hosts do not reach backends.", "sysctl -w "+dotted(family.setting)+"=1 on the host")
		}
	}
}

// examinePlace looks for servers and links that use the listen address p of balancer b.
func examinePlace(b balancer.Config, p config.Place, f *facts.Facts, out *findings) {
	const ipvs = "kube-ipvs0"
	subject := b.Name + " " + p.String()
	if owner := f.Owner(facts.Port{Use: "balancer", Network: "tcp", Local: p.AddrPort}); owner.Local.IsValid() && !(p.VIP != "" && servesItself(b, p)) {
		out.warning(subject, "another server listens there: "+owner.String(),
			"New connections reach that server only while no backend serves.",
			fmt.Sprintf("move it to another port, or stop it: ss -ltnp 'sport = :%d'", p.Port()))
	}
	if f.HostError != nil || p.VIP != "" { // examineVIPs reports these
		return
	}
	link, there := f.Host.Has(p.Addr())
	switch {
	case !there && !p.Addr().IsLoopback():
		out.warning(subject, "no link of this node has "+p.Addr().String(),
			"Only clients on this node can use it.", "ip address; then correct balancers[].listen")
	case link == ipvs:
		out.warning(subject, "kube-proxy in IPVS mode has the address on "+ipvs,
			"It belongs to a Service: Herald takes over one of its ports, and kube-proxy keeps the others.", "kubectl get services -A | grep "+p.Addr().String()+"; listen at another address")
	}
}

// servesItself reports whether a server at p may be a backend of b: a backend that listens on all addresses has p too.
func servesItself(b balancer.Config, p config.Place) bool {
	switch {
	case b.Backends.Members != nil:
		return b.Backends.Members.Port == p.Port()
	case b.Backends.Static != nil:
		return slices.ContainsFunc(b.Backends.Static.Addresses, func(at netip.AddrPort) bool { return at.Port() == p.Port() })
	}
	return b.Backends.DNS != nil && b.Backends.DNS.Port == p.Port()
}

// examineBackends examines the backends of b.
func examineBackends(b balancer.Config, f *facts.Facts, out *findings) {
	all := f.Backends[b.Name]
	if err := all.Err; err != nil {
		name := b.Name
		if b.Backends.DNS != nil {
			name = b.Backends.DNS.Name
		}
		out.warning(b.Name, err.Error(), "Connections are refused, unless Herald still knows earlier backends.", "herald status; for a name: getent ahosts "+name)
	}
	severity, why := Warning, "The balancer sends it no connections."
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
			out.add(severity, subject, k.Reason, why, "check that the server runs and listens on that address, not only on 127.0.0.1")
		}
	}
}
