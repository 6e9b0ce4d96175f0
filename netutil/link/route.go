package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

const (
	// localWithin bounds the wait for the kernel to accept packets for an IPv6 address, and
	// localEvery is the time between two requests. The wait takes a millisecond or two.
	localWithin = 50 * time.Millisecond
	localEvery  = 500 * time.Microsecond
)

// AwaitLocal waits until the kernel accepts packets for addr. The kernel acknowledges a new IPv6
// address, even without duplicate address detection, before a kernel worker has made its route, and
// drops packets until then. For IPv4 it returns at once. It fails after 50 ms, or if the
// kernel rejects the request.
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
