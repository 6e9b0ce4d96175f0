package netutil

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// RouterID returns the node's BGP identifier: its first global IPv4 address, by
// index of the link and there in the kernel's order. Addresses on lo come last, for
// that is where virtual ones live that other nodes have too. Herald's own VIPs are
// passed over, and so is what except lists, wherever it is.
func RouterID(except ...netip.Addr) (netip.Addr, error) {
	k := &rtnetlink{}
	defer k.close()
	links, addrs, err := k.dump()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find a router ID: %w", err)
	}
	return routerID(links, addrs, except)
}

func routerID(links []link, addrs []address, except []netip.Addr) (netip.Addr, error) {
	for _, l := range inOrder(links) {
		for _, a := range addrs {
			if a.link == l.index && a.ip.Is4() && global(a) && !slices.Contains(except, a.ip) {
				return a.ip, nil
			}
		}
	}
	return netip.Addr{}, errors.New("find a router ID: this node has no global IPv4 address: set bgp.routerID")
}

// GlobalAddr6 returns a global IPv6 address of the link that carries the given local
// address: that itself if it is one, else the lowest that is no temporary one (RFC
// 8981). It serves as next hop of IPv6 routes on a session over IPv4 or over
// link-local addresses; of the latter the zone counts, if there is one.
func GlobalAddr6(sameLinkAs netip.Addr) (netip.Addr, error) {
	k := &rtnetlink{}
	defer k.close()
	links, addrs, err := k.dump()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: %w", err)
	}
	return globalAddr6(links, addrs, sameLinkAs)
}

func globalAddr6(links []link, addrs []address, local netip.Addr) (netip.Addr, error) {
	zone := local.Zone()
	local = local.Unmap().WithZone("")
	var carrier string
	for _, l := range inOrder(links) {
		if zone != "" && zone != l.name {
			continue
		}
		if !slices.ContainsFunc(addrs, func(a address) bool { return a.link == l.index && a.ip == local }) {
			continue
		}
		carrier = l.name
		var found netip.Addr
		for _, a := range addrs {
			const unfit = unix.IFA_F_TEMPORARY | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
			switch {
			case a.link != l.index || !a.ip.Is6() || !global(a) || a.flags&unfit != 0:
			case a.ip == local:
				return local, nil
			case !found.IsValid() || a.ip.Less(found): // the kernel lists the newest first, so its order depends on chance
				found = a.ip
			}
		}
		if found.IsValid() {
			return found, nil
		}
	}
	if carrier == "" {
		return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: no link has %s", local)
	}
	return netip.Addr{}, fmt.Errorf("find an IPv6 next hop: %s, which has %s, has no global IPv6 address: give it one or set the peer's nextHop6", carrier, local)
}

// global is whether an address may stand for the node: beyond its link, and not
// deprecated as VIPs are.
func global(a address) bool {
	return a.scope == unix.RT_SCOPE_UNIVERSE && a.ip.IsGlobalUnicast() && a.flags&unix.IFA_F_DEPRECATED == 0
}

// inOrder sorts links by index, loopback last.
func inOrder(links []link) []link {
	return slices.SortedStableFunc(slices.Values(links), func(x, y link) int {
		if x.loopback != y.loopback {
			if x.loopback {
				return 1
			}
			return -1
		}
		return cmp.Compare(x.index, y.index)
	})
}
