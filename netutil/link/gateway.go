package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// Gateways returns the next hops of the default routes of a family in the main table, of the lowest metric only,
// sorted. There are several if the kernel spreads packets over them. A link-local address has its link as zone.
func Gateways(ipv6 bool) ([]netip.Addr, error) {
	family := netlink.FAMILY_V4
	if ipv6 {
		family = netlink.FAMILY_V6
	}
	const filter = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_TYPE | netlink.RT_FILTER_DST // no destination: default routes
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}, filter)
	if err != nil {
		return nil, fmt.Errorf("read default routes: %w", err)
	}
	var out []netip.Addr
	for _, h := range nextHops(routes) {
		addr, _ := h.gateway()
		if addr.Is6() && addr.IsLinkLocalUnicast() {
			l, err := net.InterfaceByIndex(h.LinkIndex)
			if err != nil {
				return nil, fmt.Errorf("find the link of the default gateway %s: %w", addr, err)
			}
			addr = addr.WithZone(l.Name)
		}
		out = append(out, addr)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// nextHop is a next hop of a route.
type nextHop netlink.NexthopInfo

// nextHops returns the next hops with a gateway, of the routes with the lowest metric.
func nextHops(routes []netlink.Route) []nextHop {
	var out []nextHop
	lowest := 0
	for _, r := range routes {
		paths := r.MultiPath
		if len(paths) == 0 {
			paths = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Flags: r.Flags, Gw: r.Gw, Via: r.Via}}
		}
		for _, p := range paths {
			hop := nextHop(*p)
			if _, ok := hop.gateway(); !ok || len(out) > 0 && r.Priority > lowest {
				continue
			}
			if r.Priority < lowest {
				out = nil
			}
			out, lowest = append(out, hop), r.Priority
		}
	}
	return out
}

// gateway returns the address of the next hop; false if it has none or is dead.
func (h nextHop) gateway() (netip.Addr, bool) {
	ip := h.Gw
	if via, ok := h.Via.(*netlink.Via); ok { // address of the other family
		ip = via.Addr
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok && h.Flags&unix.RTNH_F_DEAD == 0
}

// WatchGateways calls changed at once, when the result of [Gateways] may have changed, and after each rest without a
// change. It runs on this goroutine until ctx is done, then returns nil. An error means that it could not start.
func WatchGateways(ctx context.Context, watcher *rtnetlink.Watcher, rest time.Duration, changed func()) error {
	for begun := false; ctx.Err() == nil; begun = true {
		sub, err := watcher.Subscribe()
		switch {
		case err == nil:
			changed()
			followRoutes(ctx, sub, rest, changed)
			sub.Close()
		case !begun:
			return fmt.Errorf("watch default routes: %w", err)
		}
		// The kernel lost changes (ENOBUFS) or is short of memory.
		wake.Pause(ctx, rtnetlink.Pause)
	}
	return nil
}

// followRoutes calls changed until the subscription fails or ctx is done.
func followRoutes(ctx context.Context, sub *rtnetlink.Subscription, rest time.Duration, changed func()) {
	rested := time.NewTimer(rest)
	defer rested.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rested.C:
			changed()
			continue
		case <-sub.Ready():
		}
		events, err := sub.Take()
		if err != nil {
			return
		}
		if slices.ContainsFunc(events, func(e rtnetlink.Event) bool { return e.Address == nil || e.Gone }) {
			changed()
			rested.Reset(rest)
			wake.Pause(ctx, rtnetlink.Pause) // limits the rate: links of pods come and go
		}
	}
}

// To returns the name of the link that this host would use for a packet to addr now. That is lo for its own
// addresses, and the zone for an address with a zone.
func To(addr netip.Addr) (string, error) {
	if addr.Zone() != "" {
		return addr.Zone(), nil
	}
	r, err := routeTo(addr)
	if err != nil {
		return "", err
	}
	link, err := net.InterfaceByIndex(r.LinkIndex)
	if err != nil {
		return "", fmt.Errorf("route to %s: %w", addr, err)
	}
	return link.Name, nil
}

// routeTo asks the kernel for the route of a packet to addr.
func routeTo(addr netip.Addr) (netlink.Route, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("the kernel returned none")
	}
	if err != nil {
		return netlink.Route{}, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	return routes[0], nil
}

const (
	// localWithin bounds the wait for the kernel to accept packets for an IPv6 address, and
	// localEvery is the time between two requests. The wait takes a millisecond or two.
	localWithin = 50 * time.Millisecond
	localEvery  = 500 * time.Microsecond
)

// AwaitLocal waits until the kernel accepts packets for addr. The kernel acknowledges a new IPv6 address, even without
// duplicate address detection, before a kernel worker has made its route, and drops packets until then. For IPv4 it
// returns at once. It fails after 50 ms, or if the kernel rejects the request.
func AwaitLocal(addr netip.Addr) error {
	if addr.Is4() {
		return nil
	}
	tick := time.Tick(localEvery)
	for end := time.Now().Add(localWithin); time.Now().Before(end); <-tick {
		r, err := routeTo(addr)
		unreachable := errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
		if r.Type == unix.RTN_LOCAL || err != nil && !unreachable {
			return err
		}
	}
	return fmt.Errorf("the kernel does not accept packets for %s within %v", addr, localWithin)
}
