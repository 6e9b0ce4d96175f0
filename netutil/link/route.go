package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

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
