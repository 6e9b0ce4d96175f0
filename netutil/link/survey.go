package link

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

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

// For is [For] among the survey's links.
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
