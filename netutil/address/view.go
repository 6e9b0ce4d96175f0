package address

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

type (
	link    = rtnetlink.Link
	address = rtnetlink.Address
	event   = rtnetlink.Event
)

// place distinguishes the entries of one IP address: a host may have it
// on several links, and IPv4 even several times on one.
type place struct {
	link   int
	subnet netip.Prefix
}

// view is what the host has. The cost of an update does not depend on its size.
type view struct {
	links  map[int]link
	index  map[string]int
	places map[netip.Addr]map[place]address
	// marks says whether the kernel knows IFA_PROTO (Linux 5.18): such kernels mark addresses of their own, at least 127.0.0.1.
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
		v.addReported(a)
	}
	return v
}

// addReported adds an address as the kernel reports it.
func (v *view) addReported(a address) {
	v.marks = v.marks || a.Proto != 0
	v.put(a)
}

func (v *view) put(a address) {
	at, ok := v.places[a.IP]
	if !ok {
		at = make(map[place]address, 1)
		v.places[a.IP] = at
	}
	at[place{a.Link, a.Subnet}] = a
}

func (v *view) drop(a address) {
	at := v.places[a.IP]
	delete(at, place{a.Link, a.Subnet})
	if len(at) == 0 {
		delete(v.places, a.IP)
	}
}

// setLink returns the names whose link became another one, or went up or down.
func (v *view) setLink(l link) []string {
	old, known := v.links[l.Index]
	if known && old.Equal(l) {
		return nil
	}
	var changed []string
	if known && old.Name != l.Name {
		changed = v.dropLink(old)
	}
	v.links[l.Index], v.index[l.Name] = l, l.Index
	return append(changed, l.Name)
}

// dropLink leaves the link's addresses: the kernel reports the end of each.
func (v *view) dropLink(l link) []string {
	old, known := v.links[l.Index]
	if !known {
		return nil
	}
	delete(v.links, l.Index)
	if v.index[old.Name] == l.Index { // else another link has taken the name meanwhile
		delete(v.index, old.Name)
	}
	return []string{old.Name}
}

func (v *view) byName(name string) (link, bool) {
	i, ok := v.index[name]
	return v.links[i], ok
}

// vip is the address Herald puts on a link for ip.
//
// It has a lifetime, so that the kernel removes it when no process is left to do so. It is deprecated from the start (RFC 4862, 5.5.4) so that IPv6 picks
// it as a source address only if there is no other. IPv4 knows no such thing but
// scopes: on lo it is host, which is never picked for traffic that leaves the
// host. Elsewhere that would list it ahead of the link's own address, and
// programs that take a link's first address for the node's would take the VIP;
// global scope lists it behind, and the kernel picks the first.
func vip(l link, ip netip.Addr, lifetime time.Duration, mark uint8) address {
	a := address{
		Link:   l.Index,
		IP:     ip,
		Subnet: netip.PrefixFrom(ip, ip.BitLen()),
		Flags:  unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED,
		Valid:  uint32(lifetime / time.Second),
		Proto:  mark,
	}
	if ip.Is6() {
		a.Flags |= unix.IFA_F_NODAD // the other holders of an anycast address are no duplicates
		return a
	}
	a.Label = label(l.Name)
	if l.Loopback {
		a.Scope = unix.RT_SCOPE_HOST
	}
	return a
}

// label shows in `ip address` that an IPv4 address is Herald's. By custom a
// label starts with the link's name, which is also the default; long names leave
// no room for more.
func label(link string) string {
	const suffix = ":herald"
	if len(link)+len(suffix) >= unix.IFNAMSIZ {
		return link
	}
	return link + suffix
}
