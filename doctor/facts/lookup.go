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
		return "a program that is not visible from here"
	}
	return fmt.Sprintf("%s, process %d", s.Program, s.PID)
}

// Owner returns the socket that listens on p; the zero value if none is visible.
func (f *Facts) Owner(p Port) Socket {
	for _, s := range f.Sockets {
		if s.Network == p.Network && s.Local.Port() == p.Local.Port() &&
			(s.Local.Addr() == p.Local.Addr() || s.Local.Addr().IsUnspecified() || p.Local.Addr().IsUnspecified()) {
			return s
		}
	}
	return Socket{}
}

// Herald returns the process of the Herald that runs in this network namespace.
func (f *Facts) Herald() (Program, bool) {
	i := slices.IndexFunc(f.Programs, func(p Program) bool { return p.Name == "herald" && slices.Contains(p.Args, "run") })
	if i < 0 {
		return Program{}, false
	}
	return f.Programs[i], true
}

// Links returns all links in order of their index.
func (f *Facts) Links() []link.Link {
	return slices.SortedFunc(maps.Values(f.Host.Links), func(a, b link.Link) int { return cmp.Compare(a.Index, b.Index) })
}

// Carrier returns the link for an address of v, as the daemon chooses it.
func (f *Facts) Carrier(v config.VIP, addr netip.Addr) (string, error) {
	switch {
	case v.Announce == config.AnnounceKernel:
		return route.Device, nil
	case v.Interface != "":
		return v.Interface, nil
	}
	return f.Host.For(addr)
}

// Member returns the member with this MAC address in the neighbour table; empty if there is none.
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

// NameOf returns a name in the certificate that stands for addr or resolves to it; empty if there is none.
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
