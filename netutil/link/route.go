package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// To names the link by which this host would send a packet to addr now. To its own
// addresses that is lo, and to one with a zone that.
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

// routeTo asks the kernel where it would send a packet.
func routeTo(addr netip.Addr) (netlink.Route, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("the kernel names none")
	}
	if err != nil {
		return netlink.Route{}, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	return routes[0], nil
}
