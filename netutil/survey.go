package netutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Survey is what a node has of links, addresses and neighbours at one moment.
type Survey struct {
	// Links are all links by name.
	Links map[string]Link
	// Addresses are those of all links, single ones included.
	Addresses []Address
	// Neighbours are the machines whose hardware addresses the kernel knows.
	Neighbours []Neighbour
}

// Address is an IP address on a link.
type Address struct {
	Link string
	// Prefix is the address with the length of its subnet.
	Prefix netip.Prefix
	// Herald says that a Herald put it there, this or an earlier one.
	Herald bool
}

// Neighbour is an entry of the neighbour table that has a hardware address.
type Neighbour struct {
	Link string
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// Look surveys the node. It changes nothing and needs no privileges.
func Look() (Survey, error) {
	k := &rtnetlink{}
	defer k.close()
	t, err := readLinks(k)
	if err != nil {
		return Survey{}, fmt.Errorf("survey the node: %w", err)
	}
	_, addrs, err := k.dump()
	if err != nil {
		return Survey{}, fmt.Errorf("survey the node: %w", err)
	}
	neighbours, err := dump(k, unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg), decodeNeighbour)
	if err != nil {
		return Survey{}, fmt.Errorf("survey the node: read neighbours: %w", err)
	}
	s := Survey{Links: t.byName()}
	marks := slices.ContainsFunc(addrs, func(a address) bool { return a.proto != 0 })
	for _, a := range addrs {
		name := t.links[a.link].Name
		s.Addresses = append(s.Addresses, Address{
			Link: name, Prefix: netip.PrefixFrom(a.ip, a.subnet.Bits()), Herald: ours(a, name, defaultMark, marks),
		})
	}
	for _, n := range neighbours {
		s.Neighbours = append(s.Neighbours, Neighbour{Link: t.links[n.link].Name, Addr: n.addr, MAC: n.mac})
	}
	return s, nil
}

// LinkFor is the package's LinkFor in what was surveyed.
func (s Survey) LinkFor(addr netip.Addr) (string, error) {
	return linkFor(maps.Values(s.Links), addr.Unmap())
}

// Has says whether a link has the address, and which.
func (s Survey) Has(addr netip.Addr) (link string, ok bool) {
	for _, a := range s.Addresses {
		if a.Prefix.Addr() == addr {
			return a.Link, true
		}
	}
	return "", false
}

// neighbour is an entry of the neighbour table.
type neighbour struct {
	link int // index
	addr netip.Addr
	mac  net.HardwareAddr
}

// decodeNeighbour reads an ndmsg; ok is false for what has no hardware address, which
// nobody answered for or nobody was asked about, and for other families.
func decodeNeighbour(b []byte) (n neighbour, ok bool, err error) {
	if len(b) < unix.SizeofNdMsg {
		return neighbour{}, false, errors.New("neighbour message is too short")
	}
	if b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return neighbour{}, false, nil
	}
	n.link = int(int32(binary.NativeEndian.Uint32(b[4:8])))
	const unresolved = unix.NUD_INCOMPLETE | unix.NUD_FAILED | unix.NUD_NOARP
	state := binary.NativeEndian.Uint16(b[8:10])
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofNdMsg:])
	if err != nil {
		return neighbour{}, false, fmt.Errorf("neighbour message: %w", err)
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NDA_DST:
			n.addr, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.NDA_LLADDR:
			n.mac = slices.Clone(attrs.Bytes())
		}
	}
	if err := attrs.Err(); err != nil {
		return neighbour{}, false, fmt.Errorf("neighbour message: %w", err)
	}
	return n, state&unresolved == 0 && n.addr.IsValid() && len(n.mac) > 0, nil
}
