package facts

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/route"
)

// String names the owner of the socket.
func (s Socket) String() string {
	if s.PID == 0 {
		return "a program that cannot be seen from here"
	}
	return fmt.Sprintf("%s, process %d", s.Program, s.PID)
}

// Owner is who listens on a port, as far as that can be seen.
func (f *Facts) Owner(p Port) Socket {
	for _, s := range f.Sockets {
		if s.Network == p.Network && s.Local.Port() == p.Local.Port() &&
			(s.Local.Addr() == p.Local.Addr() || s.Local.Addr().IsUnspecified() || p.Local.Addr().IsUnspecified()) {
			return s
		}
	}
	return Socket{}
}

// Herald is the process of a Herald that runs in this network namespace.
func (f *Facts) Herald() (Program, bool) {
	i := slices.IndexFunc(f.Programs, func(p Program) bool { return p.Name == "herald" && slices.Contains(p.Args, "run") })
	if i < 0 {
		return Program{}, false
	}
	return f.Programs[i], true
}

// Links are all links in order of their index.
func (f *Facts) Links() []link.Link {
	return slices.SortedFunc(maps.Values(f.Host.Links), func(a, b link.Link) int { return cmp.Compare(a.Index, b.Index) })
}

// Carrier is the link that a VIP's address goes on, as the daemon chooses it.
func (f *Facts) Carrier(v config.VIP, addr netip.Addr) (string, error) {
	switch {
	case v.Announce == config.AnnounceKernel:
		return route.Device, nil
	case v.Interface != "":
		return v.Interface, nil
	}
	return f.Host.For(addr)
}

// Member is whose hardware address this is, as the neighbour table has it; empty if no member's.
func (f *Facts) Member(c *config.Config, mac net.HardwareAddr) string {
	for _, n := range f.Host.Neighbours {
		if !bytes.Equal(n.MAC, mac) {
			continue
		}
		for _, name := range Others(c) {
			if c.Election.Members[name].Addr() == n.Addr {
				return name
			}
		}
	}
	return ""
}

// NameOf is by which of the certificate's names clients may reach addr; empty if by none.
func (e Endpoint) NameOf(addr netip.Addr) string {
	leaf := e.Chain[0]
	if leaf.VerifyHostname(addr.String()) == nil {
		return addr.String()
	}
	for _, name := range leaf.DNSNames {
		if slices.Contains(e.Resolved[name], addr) {
			return name
		}
	}
	return ""
}
