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

// place distinguishes the entries of one IP address. A host may have it on several links, and
// in IPv4 several times on one link.
type place struct {
	link   int
	subnet netip.Prefix
}

// view holds the host's links and addresses. The cost of an update does not depend on its size.
type view struct {
	links  map[int]link
	index  map[string]int
	places map[netip.Addr]map[place]address
	// marks reports whether the kernel knows IFA_PROTO (Linux 5.18). Such kernels mark their own addresses, at least 127.0.0.1.
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

// setLink updates a link, and returns the names that now stand for another link or for a changed one.
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

// dropLink removes a link, and returns its name. It keeps the addresses: the kernel reports the end of each.
func (v *view) dropLink(l link) []string {
	old, known := v.links[l.Index]
	if !known {
		return nil
	}
	delete(v.links, l.Index)
	if v.index[old.Name] == l.Index { // otherwise another link has the name now
		delete(v.index, old.Name)
	}
	return []string{old.Name}
}

func (v *view) byName(name string) (link, bool) {
	i, ok := v.index[name]
	return v.links[i], ok
}

// vip returns the address that Herald puts on a link for ip.
//
// It has a lifetime, so that the kernel removes it when the process is gone. It is deprecated from the
// start (RFC 4862, section 5.5.4), so that IPv6 picks it as a source address only if there is no other.
//
// IPv4 has only scopes for that. On lo the scope is host: the kernel never picks the address for traffic that leaves
// the host. On other links host scope would list the VIP before the link's own address, and programs that take a link's
// first address for the node's would take the VIP. Global scope lists it last, and the kernel picks the first.
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
		a.Flags |= unix.IFA_F_NODAD // other holders of an anycast address are not duplicates
		return a
	}
	a.Label = label(l.Name)
	if l.Loopback {
		a.Scope = unix.RT_SCOPE_HOST
	}
	return a
}

// label returns the label that marks an IPv4 address as Herald's in `ip address`. By convention a label starts with the
// link's name, which is the default. Long names leave no room for a suffix.
func label(link string) string {
	const suffix = ":herald"
	if len(link)+len(suffix) >= unix.IFNAMSIZ {
		return link
	}
	return link + suffix
}
