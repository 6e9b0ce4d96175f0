package netutil

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// link is a network interface.
type link struct {
	index    int
	name     string
	up       bool // administratively; carrier does not matter to an address
	loopback bool
}

// address is an IP address on a link, as rtnetlink tells it.
type address struct {
	link      int // index
	ip        netip.Addr
	subnet    netip.Prefix // the on-link subnet, or the far end of a point-to-point link
	scope     uint8
	flags     uint32 // IFA_F_*
	label     string // IPv4 only
	valid     uint32 // seconds left, or infinite
	preferred uint32 // seconds left, or infinite
	proto     uint8  // IFA_PROTO: who put it there
}

// infinite is the lifetime of a permanent address.
const infinite = ^uint32(0)

// place is what tells apart the entries of one IP address: a host may have it
// on several links, and IPv4 even several times on one.
type place struct {
	link   int
	subnet netip.Prefix
}

// event is a link or an address that appeared, changed or went.
type event struct {
	gone    bool
	link    *link
	address *address
}

// view is what the host has. Every update costs the same, however much that is.
type view struct {
	links  map[int]link
	index  map[string]int
	places map[netip.Addr]map[place]address
	// marks is whether the kernel knows IFA_PROTO (Linux 5.18): such kernels mark addresses of their own, at least 127.0.0.1.
	marks bool
}

func newView(links []link, addrs []address) view {
	v := view{
		links:  make(map[int]link, len(links)),
		index:  make(map[string]int, len(links)),
		places: make(map[netip.Addr]map[place]address, len(addrs)),
	}
	for _, l := range links {
		v.setLink(l)
	}
	for _, a := range addrs {
		v.learn(a)
	}
	return v
}

// learn takes in an address as the kernel tells it.
func (v *view) learn(a address) {
	v.marks = v.marks || a.proto != 0
	v.put(a)
}

func (v *view) put(a address) {
	at, ok := v.places[a.ip]
	if !ok {
		at = make(map[place]address, 1)
		v.places[a.ip] = at
	}
	at[place{a.link, a.subnet}] = a
}

func (v *view) drop(a address) {
	at := v.places[a.ip]
	delete(at, place{a.link, a.subnet})
	if len(at) == 0 {
		delete(v.places, a.ip)
	}
}

// setLink returns the names whose link is another than before, or went up or down.
func (v *view) setLink(l link) []string {
	old, known := v.links[l.index]
	if known && old == l {
		return nil
	}
	var changed []string
	if known && old.name != l.name {
		changed = v.dropLink(old)
	}
	v.links[l.index], v.index[l.name] = l, l.index
	return append(changed, l.name)
}

// dropLink leaves the link's addresses: the kernel reports the end of each.
func (v *view) dropLink(l link) []string {
	old, known := v.links[l.index]
	if !known {
		return nil
	}
	delete(v.links, l.index)
	if v.index[old.name] == l.index { // else another link has taken the name meanwhile
		delete(v.index, old.name)
	}
	return []string{old.name}
}

func (v *view) byName(name string) (link, bool) {
	i, ok := v.index[name]
	return v.links[i], ok
}

// vip is the address Herald puts on a link for ip.
//
// It lives for a bounded time, so that the kernel removes it when nobody is left
// to do so. It is deprecated from the start (RFC 4862, 5.5.4) so that IPv6 picks
// it as a source address only if there is no other. IPv4 knows no such thing but
// scopes: on lo it is host, which is never picked for traffic that leaves the
// host. Elsewhere that would list it ahead of the link's own address, and
// programs that take a link's first address for the node's would take the VIP;
// global scope lists it behind, and the kernel picks the first.
func vip(l link, ip netip.Addr, lifetime time.Duration, mark uint8) address {
	a := address{
		link:   l.index,
		ip:     ip,
		subnet: netip.PrefixFrom(ip, ip.BitLen()),
		flags:  unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED,
		valid:  uint32(lifetime / time.Second),
		proto:  mark,
	}
	if ip.Is6() {
		a.flags |= unix.IFA_F_NODAD // the other holders of an anycast address are no duplicates
		return a
	}
	a.label = label(l.name)
	if l.loopback {
		a.scope = unix.RT_SCOPE_HOST
	}
	return a
}

// label tells whoever reads `ip address` whose an IPv4 address is. By custom a
// label starts with the link's name, which is also the default; long names leave
// no room for more.
func label(link string) string {
	const suffix = ":herald"
	if len(link)+len(suffix) >= unix.IFNAMSIZ {
		return link
	}
	return link + suffix
}
