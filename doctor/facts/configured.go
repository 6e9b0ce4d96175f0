package facts

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/link"
)

// Places returns the listen addresses of the balancers of a mode; none with an external load balancer.
func Places(c *config.Config, mode balancer.Mode) []config.Place {
	var out []config.Place
	for _, b := range c.Balancers {
		if b.Mode == mode && c.LoadBalancer.Type == config.Internal {
			out = append(out, c.Places(b)...)
		}
	}
	return out
}

// Passed returns the addresses with packets that the kernel may forward to other nodes: all addresses
// of kernel balancers except loopback, and of VIPs with a bridge.
func Passed(c *config.Config) []netip.Addr {
	var out []netip.Addr
	for _, p := range Places(c, balancer.Kernel) {
		if !p.Addr().IsLoopback() {
			out = append(out, p.Addr())
		}
	}
	for _, v := range c.VIPs {
		if *v.Bridge {
			out = append(out, v.Addresses...)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// Secrets returns the files of keys and passwords, each once.
func Secrets(c *config.Config) []string {
	var out []string
	add := func(path string) {
		if path != "" && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	if c.Election != nil {
		add(c.Election.KeyFile)
	}
	if c.BGP != nil {
		for _, p := range c.BGP.Peers {
			add(p.PasswordFile)
		}
	}
	for _, h := range c.HTTPChecks() {
		add(h.ClientKeyFile)
		add(h.TokenFile)
	}
	return out
}

// withMembers returns c with members if its file names none: the voters that a running Herald reports,
// or else the addresses of election.join.
func (f *Facts) withMembers(c *config.Config) *config.Config {
	if c.Election == nil || len(c.Election.Members) > 0 {
		return c
	}
	copied, e := *c, *c.Election
	copied.Election, e.Members = &e, make(map[string]netip.AddrPort)
	for _, at := range e.Join {
		if _, own := f.Host.Has(at.Addr()); !own {
			e.Members[at.String()] = at
		}
	}
	if r := f.Running; r != nil && r.Election != nil {
		clear(e.Members)
		for _, m := range r.Election.Members {
			if m.Voter {
				e.Members[m.Name] = m.Address
			}
		}
	}
	return &copied
}

// Others returns the names of the other members of the election, sorted.
func Others(c *config.Config) []string {
	if c.Election == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Election.Members)), func(name string) bool { return name == c.NodeName })
}

// Addresses returns the addresses of the VIPs that are announced in one of these ways.
func Addresses(c *config.Config, how ...config.Announce) []netip.Addr {
	var out []netip.Addr
	for _, v := range c.VIPs {
		if slices.Contains(how, v.Announce) {
			out = append(out, v.Addresses...)
		}
	}
	return out
}

// Ports returns the ports that Herald opens with c, each once.
func Ports(c *config.Config) []Port {
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
	for _, p := range Places(c, balancer.Proxy) {
		add(Port{"balancer", "tcp", p.AddrPort})
	}
	if passes := func(v config.VIP) bool { return *v.Bridge && v.Announce != config.AnnounceARP }; c.Election != nil && slices.ContainsFunc(c.VIPs, passes) {
		add(Port{"second chance", "udp", netip.AddrPortFrom(unspecified(c.Election.Bind.Addr().Is4()), link.TunnelPort)})
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
		port := uint16(3784) // RFC 5881, section 4
		if *p.BFD.Multihop {
			port = 4784 // RFC 5883, section 5
		}
		add(Port{"BFD", "udp", netip.AddrPortFrom(unspecified(p.Address.Is4() || p.DefaultGateway == v1alpha1.IPv4), port)})
	}
	return out
}

func unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Front is a VIP or a balancer: clients reach a server by its addresses.
type Front struct {
	Kind, Name string
	Addresses  []netip.Addr
}

// Fronts returns the VIPs and balancers of the server that k probes.
func Fronts(c *config.Config, k health.Check) []Front {
	var out []Front
	for _, v := range c.VIPs {
		if slices.Contains(v.Checks, k.Name) {
			out = append(out, Front{"VIP", v.Name, v.Addresses})
		}
	}
	for _, b := range c.Balancers {
		if m := b.Backends.Members; m == nil || !slices.Contains(m.Checks, k.Name) {
			continue
		}
		f := Front{Kind: "balancer", Name: b.Name}
		for _, p := range c.Places(b) {
			if p.VIP == "" {
				f.Addresses = append(f.Addresses, p.Addr())
			}
		}
		if len(f.Addresses) > 0 {
			out = append(out, f)
		}
	}
	return out
}
