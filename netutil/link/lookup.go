package link

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// RouterID returns the node's BGP identifier: its first global IPv4 address, by link index and then in
// the kernel's order. Addresses on lo come last, as lo often has addresses that other nodes have
// too. RouterID skips VIPs bound by Herald, and the addresses in except. Without such an address it
// derives an identifier from the node's name; it need only be unique in the AS (RFC 6286).
func RouterID(node string, except ...netip.Addr) (netip.Addr, error) {
	k := &rtnetlink.Conn{}
	defer k.Close()
	links, addrs, err := k.Dump()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find a router ID: %w", err)
	}
	return routerID(links, addrs, except, node), nil
}

func routerID(links []Link, addrs []rtnetlink.Address, except []netip.Addr, node string) netip.Addr {
	for _, l := range inOrder(links) {
		for _, a := range addrs {
			if a.Link == l.Index && a.IP.Is4() && global(a) && !slices.Contains(except, a.IP) {
				return a.IP
			}
		}
	}
	h := sha256.Sum256([]byte(node))
	return netip.AddrFrom4([4]byte{1 + h[0]%126, h[1], h[2], h[3]}) // routers reject classes D and E
}

// GlobalAddr6 returns a global IPv6 address of the link with the given local address. If the local address is global
// IPv6 it returns that, else the lowest that is not temporary (RFC 8981). It is the next hop of IPv6 routes on a
// session over IPv4 or link-local addresses. If the local address has a zone, the zone names the link.
func GlobalAddr6(sameLinkAs netip.Addr) (netip.Addr, error) {
	k := &rtnetlink.Conn{}
	defer k.Close()
	links, addrs, err := k.Dump()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: %w", err)
	}
	return globalAddr6(links, addrs, sameLinkAs)
}

func globalAddr6(links []Link, addrs []rtnetlink.Address, local netip.Addr) (netip.Addr, error) {
	zone := local.Zone()
	local = local.Unmap().WithZone("")
	var carrier string
	for _, l := range inOrder(links) {
		if zone != "" && zone != l.Name {
			continue
		}
		if !slices.ContainsFunc(addrs, func(a rtnetlink.Address) bool { return a.Link == l.Index && a.IP == local }) {
			continue
		}
		carrier = l.Name
		var found netip.Addr
		for _, a := range addrs {
			const unfit = unix.IFA_F_TEMPORARY | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
			switch {
			case a.Link != l.Index || !a.IP.Is6() || !global(a) || a.Flags&unfit != 0:
			case a.IP == local:
				return local, nil
			case !found.IsValid() || a.IP.Less(found): // the kernel lists the newest first: its order would depend on chance
				found = a.IP
			}
		}
		if found.IsValid() {
			return found, nil
		}
	}
	if carrier == "" {
		return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: no link has %s", local)
	}
	return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: link %s with %s has no global IPv6 address: add one or set the peer's nextHop6", carrier, local)
}

// global reports whether an address can represent the node: valid beyond its link, and not deprecated, unlike VIPs.
func global(a rtnetlink.Address) bool {
	return a.Scope == unix.RT_SCOPE_UNIVERSE && a.IP.IsGlobalUnicast() && a.Flags&unix.IFA_F_DEPRECATED == 0
}

// inOrder sorts links by index, loopback last.
func inOrder(links []Link) []Link {
	return slices.SortedStableFunc(slices.Values(links), func(x, y Link) int {
		if x.Loopback != y.Loopback {
			if x.Loopback {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.Index, y.Index)
	})
}

// Survey holds the links, addresses and neighbours of a node at one moment.
type Survey struct {
	// Links are all links by name.
	Links map[string]Link
	// Addresses are the addresses of all links, including single ones.
	Addresses []Address
	// Neighbours are the neighbours with a known hardware address.
	Neighbours []Neighbour
}

// Address is an IP address on a link.
type Address struct {
	Link string
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix
	// Herald means that this or an earlier Herald added it.
	Herald bool
}

// Neighbour is an entry of the neighbour table that has a hardware address.
type Neighbour struct {
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// ReadSurvey reads the node's links, addresses and neighbours. It changes nothing and needs no privileges.
func ReadSurvey() (Survey, error) {
	k := &rtnetlink.Conn{}
	defer k.Close()
	links, addrs, err := k.Dump()
	if err != nil {
		return Survey{}, fmt.Errorf("survey the node: %w", err)
	}
	neighbours, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return Survey{}, fmt.Errorf("survey the node: read neighbours: %w", err)
	}
	t := newLinkTable(links, addrs)
	s := Survey{Links: t.byName(), Neighbours: resolved(neighbours)}
	marks := slices.ContainsFunc(addrs, func(a rtnetlink.Address) bool { return a.Proto != 0 })
	for _, a := range addrs {
		name := t.links[a.Link].Name
		s.Addresses = append(s.Addresses, Address{
			Link: name, Prefix: netip.PrefixFrom(a.IP, a.Subnet.Bits()), Herald: address.Ours(a, name, address.DefaultMark, marks),
		})
	}
	return s, nil
}

// For finds the link as [Finder] does, among the survey's links.
func (s Survey) For(addr netip.Addr) (string, error) {
	return Among(s.Links, nil, addr)
}

// Has returns the link that has the address.
func (s Survey) Has(addr netip.Addr) (link string, ok bool) {
	for _, a := range s.Addresses {
		if a.Prefix.Addr() == addr {
			return a.Link, true
		}
	}
	return "", false
}

// resolved returns the neighbours with a hardware address.
func resolved(entries []netlink.Neigh) []Neighbour {
	const unresolved = unix.NUD_INCOMPLETE | unix.NUD_FAILED | unix.NUD_NOARP
	var out []Neighbour
	for _, n := range entries {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&unresolved == 0 && len(n.HardwareAddr) > 0 {
			out = append(out, Neighbour{addr, n.HardwareAddr})
		}
	}
	return out
}
