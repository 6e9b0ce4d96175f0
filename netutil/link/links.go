// Package link reads the links of this host: their state, addresses, routes and settings.
package link

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

const (
	// TunnelName is the link over which members pass on misrouted packets, see balancer/secondchance.
	TunnelName = "herald-tunnel"
	// TunnelPort is the link's UDP port.
	TunnelPort = 7947
)

// Link is a network interface with its subnets.
type Link = rtnetlink.Link

// Finder returns a function that returns the name of the link with an address in the same subnet as addr. The smallest
// such subnet decides. The first call of the function reads the links, further ones share that.
func Finder() func(addr netip.Addr) (string, error) {
	read := sync.OnceValues(func() (map[string]Link, error) {
		k := &rtnetlink.Conn{}
		defer k.Close()
		t, err := readLinks(k)
		return t.byName(), err
	})
	return func(addr netip.Addr) (string, error) {
		links, err := read()
		if err != nil {
			return "", fmt.Errorf("find the link for %s: %w", addr, err)
		}
		return Among(links, nil, addr)
	}
}

// Among is a function of [Finder] among links by name, as [Watch] reports them. If names is not empty it
// returns one of them: the link with a subnet that contains addr, else the first existing one.
func Among(links map[string]Link, names []string, addr netip.Addr) (string, error) {
	if len(names) == 0 {
		return linkFor(maps.Values(links), addr.Unmap())
	}
	var named []Link
	for _, name := range names {
		if l, ok := links[name]; ok {
			named = append(named, l)
		}
	}
	if len(named) == 0 {
		return "", fmt.Errorf("find the link for %s: there is no %s", addr, strings.Join(names, " or "))
	}
	if name, err := linkFor(slices.Values(named), addr.Unmap()); err == nil {
		return name, nil
	}
	return named[0].Name, nil
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

// linkTable holds the links of the host and their addresses.
type linkTable struct {
	links map[int]Link
	addrs map[int]map[netip.Prefix]struct{} // by link index: each address with the length of its subnet
}

func newLinkTable(links []Link, addrs []rtnetlink.Address) linkTable {
	t := linkTable{links: make(map[int]Link, len(links)), addrs: make(map[int]map[netip.Prefix]struct{})}
	for _, l := range links {
		t.links[l.Index] = l
	}
	for _, a := range addrs {
		t.setAddress(a, false)
	}
	return t
}

// byName returns the links with their subnets, by name.
func (t linkTable) byName() map[string]Link {
	out := make(map[string]Link, len(t.links))
	for _, l := range t.links {
		for p := range t.addrs[l.Index] {
			l.Prefixes = append(l.Prefixes, p.Masked())
		}
		slices.SortFunc(l.Prefixes, netip.Prefix.Compare)
		l.Prefixes = slices.Compact(l.Prefixes)
		out[l.Name] = l
	}
	return out
}

// apply updates the table by an event, and reports whether a link may have changed.
func (t linkTable) apply(e rtnetlink.Event) bool {
	switch {
	case e.Address != nil:
		return t.setAddress(*e.Address, e.Gone)
	case e.Link == nil:
		return false
	case e.Gone:
		delete(t.links, e.Link.Index)
		delete(t.addrs, e.Link.Index)
	default:
		t.links[e.Link.Index] = *e.Link
	}
	return true
}

// setAddress adds or removes an address. It ignores addresses that do not count for [Link.Prefixes].
func (t linkTable) setAddress(a rtnetlink.Address, gone bool) bool {
	if a.Subnet.IsSingleIP() || !a.IP.IsGlobalUnicast() || !a.Subnet.Contains(a.IP) {
		return false
	}
	p := netip.PrefixFrom(a.IP, a.Subnet.Bits())
	switch {
	case gone:
		delete(t.addrs[a.Link], p)
	case t.addrs[a.Link] == nil:
		t.addrs[a.Link] = map[netip.Prefix]struct{}{p: {}}
	default:
		t.addrs[a.Link][p] = struct{}{}
	}
	return true
}

// Watch calls changed with all links by name, at once and after each change, until ctx is done; then it returns nil. An
// error means that it could not start. After the kernel has lost changes Watch reads everything again. It calls changed
// on this goroutine. changed should return soon, and owns its argument.
func Watch(ctx context.Context, watcher *rtnetlink.Watcher, changed func(map[string]Link)) error {
	k := &rtnetlink.Conn{NetNS: watcher.NetNS}
	defer k.Close()
	var reported map[string]Link // last
	report := func(t linkTable) {
		now := t.byName()
		if reported == nil || !maps.EqualFunc(reported, now, Link.Equal) {
			reported = t.byName()
			changed(now)
		}
	}
	for {
		err := listen(ctx, k, watcher, report)
		switch {
		case ctx.Err() != nil:
			return nil
		case reported == nil:
			return fmt.Errorf("watch links: %w", err)
		}
		// The kernel lost changes (ENOBUFS) or is short of memory.
		wake.Pause(ctx, rtnetlink.Pause)
	}
}

// listen subscribes, reads everything, and then reports changes until the subscription fails or ctx is done.
func listen(ctx context.Context, k *rtnetlink.Conn, watcher *rtnetlink.Watcher, report func(linkTable)) error {
	sub, err := watcher.Subscribe()
	if err != nil {
		return err
	}
	defer sub.Close()
	t, err := readLinks(k)
	if err != nil {
		return err
	}
	k.Close()
	report(t)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.Ready():
		}
		events, err := sub.Take()
		if err != nil {
			return err
		}
		for _, e := range events {
			if t.apply(e) { // reports each event: a link that goes down and up was down
				report(t)
			}
		}
	}
}

// readLinks reads the table of all links.
func readLinks(r *rtnetlink.Conn) (linkTable, error) {
	links, addrs, err := r.Dump()
	return newLinkTable(links, addrs), err
}

// Setting is a kernel setting of IPv4 on a link, by its number in linux/ip.h. Each is a file below
// /proc/sys/net/ipv4/conf.
type Setting uint16

// The settings that Herald changes.
const (
	// Forwarding permits forwarding packets that arrived on the link (forwarding).
	Forwarding Setting = 1
	// ReversePath drops packets that did not arrive by the link of the route to their sender (rp_filter).
	ReversePath Setting = 8
	// ARPAnnounce selects the source address of ARP requests (arp_announce). With [AnnounceOwn] it is an address in the
	// requested subnet.
	ARPAnnounce Setting = 18
	// RouteLocalnet permits routing of 127.0.0.0/8 on the link (route_localnet).
	RouteLocalnet Setting = 26
)

// AnnounceOwn is a value of [ARPAnnounce].
const AnnounceOwn = 2

// Set sets a setting of a link by rtnetlink, which needs only CAP_NET_ADMIN: containers and sandboxed services cannot
// write /proc/sys. The error is unix.ENODEV if there is no such link, and unix.EPERM without the capability.
func (s Setting) Set(link string, value uint32) error {
	if err := s.set(link, value); err != nil {
		return fmt.Errorf("set IPv4 setting %d of %s: %w", s, link, err)
	}
	return nil
}

func (s Setting) set(link string, value uint32) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return unix.ENODEV // the only likely cause
	}
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(i.Index)
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	families.AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil).AddRtAttr(int(s), nl.Uint32Attr(value))
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.AddData(header)
	request.AddData(families)
	_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
