package router

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	protocolBGP = netlink.RouteProtocol(unix.RTPROT_BGP) // 186: marks the routes as ours
	metricBGP   = 20                                     // as FRR's zebra sets it
)

// fib is the kernel's main routing table, as far as it is ours: the routes of
// protocol BGP. It acts on the network namespace it was opened in.
type fib struct {
	handle *netlink.Handle
	next   nextHops
}

func openFIB() (*fib, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &fib{handle, make(nextHops)}, nil
}

func (f *fib) close() { f.handle.Close() }

// replace sets the route to prefix in one step. If the kernel finds one of
// several next hops unreachable, those that it can reach are set and the error
// names the others.
func (f *fib) replace(prefix netip.Prefix, hops []netip.Addr) error {
	err := f.set(prefix, hops)
	if err == nil || len(hops) == 1 {
		return err
	}
	var reachable, others []netip.Addr
	for _, hop := range hops {
		if f.reaches(hop) {
			reachable = append(reachable, hop)
		} else {
			others = append(others, hop)
		}
	}
	if len(reachable) == 0 || len(others) == 0 {
		return err
	}
	if err := f.set(prefix, reachable); err != nil {
		return err
	}
	return fmt.Errorf("left out unreachable next hops %v", others)
}

func (f *fib) set(prefix netip.Prefix, hops []netip.Addr) error {
	links := make(map[netip.Addr]int)
	for _, hop := range hops {
		name, err := f.linkTo(hop)
		if err != nil {
			return fmt.Errorf("next hop %v: %w", hop, err)
		}
		link, err := f.handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("next hop %v: %w", hop, err)
		}
		links[hop] = link.Attrs().Index
	}
	err := f.next.route(prefix, links)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) { // before Linux 5.13
		err = f.multipath(prefix, hops, links)
	}
	if err != nil {
		return fmt.Errorf("set route %v via %v: %w", prefix, hops, err)
	}
	return nil
}

// multipath sets the route without a group.
func (f *fib) multipath(prefix netip.Prefix, hops []netip.Addr, links map[netip.Addr]int) error {
	route := f.route(prefix)
	for _, hop := range hops {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: hop.WithZone("").AsSlice(), LinkIndex: links[hop]})
	}
	if len(hops) == 1 {
		route.Gw, route.LinkIndex = route.MultiPath[0].Gw, route.MultiPath[0].LinkIndex
		route.MultiPath = nil
	}
	return f.handle.RouteReplace(route)
}

// remove deletes the route to prefix; it is no error if there is none.
func (f *fib) remove(prefix netip.Prefix) error {
	err := f.handle.RouteDel(f.route(prefix))
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("delete route %v: %w", prefix, err)
	}
	return nil
}

// route is what identifies our route to prefix.
func (f *fib) route(prefix netip.Prefix) *netlink.Route {
	return &netlink.Route{
		Dst:      &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		Protocol: protocolBGP,
		Priority: metricBGP,
		Table:    unix.RT_TABLE_MAIN,
	}
}

// list returns our routes. Next hops on a link that is down are left out.
func (f *fib) list() (routes, error) {
	filter := &netlink.Route{Protocol: protocolBGP, Table: unix.RT_TABLE_MAIN}
	const mask = netlink.RT_FILTER_PROTOCOL | netlink.RT_FILTER_TABLE
	found := make(routes)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := f.handle.RouteListFiltered(family, filter, mask)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			prefix, err := prefixOf(r.Dst)
			if err != nil || r.Priority != metricBGP {
				continue
			}
			hops := r.MultiPath
			if len(hops) == 0 {
				hops = []*netlink.NexthopInfo{{Gw: r.Gw, LinkIndex: r.LinkIndex, Flags: r.Flags}}
			}
			addrs := found[prefix]
			for _, hop := range hops {
				if addr, ok := f.hopOf(hop); ok {
					addrs = append(addrs, addr)
				}
			}
			slices.SortFunc(addrs, netip.Addr.Compare)
			found[prefix] = addrs // there even if all its next hops are dead
		}
	}
	return found, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, error) {
	if n == nil {
		return netip.Prefix{}, errors.New("no destination")
	}
	return netip.ParsePrefix(n.String())
}

// hopOf is the next hop as netip.Addr, with its link as zone if it is link-local.
func (f *fib) hopOf(hop *netlink.NexthopInfo) (addr netip.Addr, ok bool) {
	addr, ok = netip.AddrFromSlice(hop.Gw)
	if !ok || hop.Flags&unix.RTNH_F_DEAD != 0 {
		return netip.Addr{}, false
	}
	addr = addr.Unmap()
	if addr.IsLinkLocalUnicast() && addr.Is6() {
		link, err := f.handle.LinkByIndex(hop.LinkIndex)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = addr.WithZone(link.Attrs().Name)
	}
	return addr, true
}

// reaches reports whether addr is on one of the links that are up.
func (f *fib) reaches(addr netip.Addr) bool {
	_, err := f.linkTo(addr)
	return err == nil
}

// linkTo returns the name of the link on which addr is a neighbour.
func (f *fib) linkTo(addr netip.Addr) (string, error) {
	if zone := addr.Zone(); zone != "" {
		link, err := f.handle.LinkByName(zone)
		if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
			return "", fmt.Errorf("link to %v is down or gone", addr)
		}
		return zone, nil
	}
	found, err := f.handle.RouteGet(addr.AsSlice())
	if err != nil {
		return "", fmt.Errorf("route to %v: %w", addr, err)
	}
	for _, r := range found {
		if r.Gw != nil {
			continue
		}
		link, err := f.handle.LinkByIndex(r.LinkIndex)
		if err != nil {
			return "", fmt.Errorf("link to %v: %w", addr, err)
		}
		return link.Attrs().Name, nil
	}
	return "", fmt.Errorf("%v is not on a link of this router", addr)
}
