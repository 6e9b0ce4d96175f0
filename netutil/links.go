package netutil

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface and what it is attached to.
type Link struct {
	Name  string
	Index int // differs when a link is deleted and made anew
	// Up is whether packets can pass: the link is up, has a carrier, and what lies
	// below it, or 802.1X, lets it (RFC 2863, section 3.1.14).
	Up  bool
	MAC net.HardwareAddr // empty if there is none
	MTU int              // bytes
	// Kind is what the kernel calls a virtual link ("vlan", "bond", "bridge",
	// "veth"); empty for a NIC.
	Kind string
	// Prefixes are the subnets of its addresses, without those of a single address
	// and link-local ones, in order.
	Prefixes []netip.Prefix
}

func (l Link) equal(o Link) bool {
	return l.Name == o.Name && l.Index == o.Index && l.Up == o.Up && bytes.Equal(l.MAC, o.MAC) && l.MTU == o.MTU &&
		l.Kind == o.Kind && slices.Equal(l.Prefixes, o.Prefixes)
}

// LinkFor returns the name of the link that has an address in the same subnet as
// addr; the smallest such subnet decides.
func LinkFor(addr netip.Addr) (string, error) {
	k := &rtnetlink{}
	defer k.close()
	t, err := readLinks(k)
	if err != nil {
		return "", fmt.Errorf("find the link for %s: %w", addr, err)
	}
	return linkFor(maps.Values(t.links), addr.Unmap())
}

// LinkAmong is [LinkFor] among links that are known, by name, as [WatchLinks] tells
// them. If names is not empty it is one of those: the one whose subnet has addr or, if
// none has, the first that there is.
func LinkAmong(links map[string]Link, names []string, addr netip.Addr) (string, error) {
	if len(names) == 0 {
		return linkFor(maps.Values(links), addr.Unmap())
	}
	var there []Link
	for _, name := range names {
		if l, ok := links[name]; ok {
			there = append(there, l)
		}
	}
	if len(there) == 0 {
		return "", fmt.Errorf("find the link for %s: there is no %s", addr, strings.Join(names, ", nor "))
	}
	if name, err := linkFor(slices.Values(there), addr.Unmap()); err == nil {
		return name, nil
	}
	return there[0].Name, nil
}

func linkFor(links iter.Seq[Link], addr netip.Addr) (string, error) {
	var found []string
	longest := -1
	for _, l := range slices.SortedFunc(links, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) }) {
		for _, p := range l.Prefixes {
			if !p.Contains(addr) || p.Bits() < longest {
				continue
			}
			if p.Bits() > longest {
				found, longest = nil, p.Bits()
			}
			found = append(found, l.Name)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("find the link for %s: no link has an address in its subnet: name it as interface of the VIP, or in arp.interfaces of the pool", addr)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("find the link for %s: %s and %s are both in its subnet: name it as interface of the VIP, or in arp.interfaces of the pool", addr, found[0], found[1])
}

// linkTable is what the host has of links, and their addresses.
type linkTable struct {
	links map[int]Link
	addrs map[int]map[netip.Prefix]struct{} // by link: each address with the length of its subnet
}

func newLinkTable(links []Link, addrs []address) linkTable {
	t := linkTable{links: make(map[int]Link, len(links)), addrs: make(map[int]map[netip.Prefix]struct{})}
	for _, l := range links {
		t.links[l.Index] = l
	}
	for _, a := range addrs {
		t.learn(a)
	}
	return t
}

// byName is a copy of the links.
func (t linkTable) byName() map[string]Link {
	out := make(map[string]Link, len(t.links))
	for _, l := range t.links {
		l.MAC, l.Prefixes = bytes.Clone(l.MAC), slices.Clone(l.Prefixes)
		out[l.Name] = l
	}
	return out
}

// apply takes in a message and returns whether it changed any link.
func (t linkTable) apply(m netlink.Message) (bool, error) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, ok, err := decodeLinkState(m.Data)
		if err != nil || !ok {
			return false, err
		}
		if m.Header.Type == unix.RTM_DELLINK {
			return t.dropLink(l.Index), nil
		}
		return t.setLink(l), nil
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, ok, err := decodeAddress(m.Data)
		if err != nil || !ok {
			return false, err
		}
		if m.Header.Type == unix.RTM_DELADDR {
			return t.forget(a), nil
		}
		return t.learn(a), nil
	}
	return false, nil
}

func (t linkTable) setLink(l Link) bool {
	old, known := t.links[l.Index]
	l.Prefixes = t.prefixes(l.Index)
	t.links[l.Index] = l
	return !known || !old.equal(l)
}

func (t linkTable) dropLink(index int) bool {
	_, known := t.links[index]
	delete(t.links, index)
	delete(t.addrs, index)
	return known
}

// entry is an address as addrs has it; ok is false for what tells nothing of a subnet.
func entry(a address) (p netip.Prefix, ok bool) {
	return netip.PrefixFrom(a.ip, a.subnet.Bits()), !a.subnet.IsSingleIP() && a.ip.IsGlobalUnicast() && a.subnet.Contains(a.ip)
}

func (t linkTable) learn(a address) bool {
	p, ok := entry(a)
	if !ok {
		return false
	}
	if t.addrs[a.link] == nil {
		t.addrs[a.link] = make(map[netip.Prefix]struct{})
	}
	t.addrs[a.link][p] = struct{}{}
	return t.renew(a.link)
}

func (t linkTable) forget(a address) bool {
	p, ok := entry(a)
	if !ok {
		return false
	}
	delete(t.addrs[a.link], p)
	return t.renew(a.link)
}

// renew works out the link's prefixes and returns whether they changed.
func (t linkTable) renew(index int) bool {
	l, known := t.links[index]
	return known && t.setLink(l)
}

func (t linkTable) prefixes(index int) []netip.Prefix {
	var out []netip.Prefix
	for p := range t.addrs[index] {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
