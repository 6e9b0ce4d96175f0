package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// localWithin bounds the wait for the kernel to accept packets for an IPv6 address,
	// and localEvery is how often it is asked. It takes a millisecond or two.
	localWithin = 50 * time.Millisecond
	localEvery  = 500 * time.Microsecond
)

// AwaitLocal waits until the kernel accepts packets for addr. The kernel acknowledges a
// new IPv6 address, even without duplicate detection, before one of its workers has made
// the route to it, and drops what arrives in between. With IPv4 there is
// nothing to wait for. The error says that it took longer than 50 ms, or what failed.
func AwaitLocal(addr netip.Addr) error {
	if addr.Is4() {
		return nil
	}
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	defer c.Close()
	tick := time.NewTicker(localEvery)
	defer tick.Stop()
	for end := time.Now().Add(localWithin); time.Now().Before(end); <-tick.C {
		local, err := isLocal(c, addr)
		if local || err != nil {
			return err
		}
	}
	return fmt.Errorf("the kernel does not accept packets for %s within %v", addr, localWithin)
}

// isLocal asks the kernel where it would send a packet to addr.
func isLocal(c *netlink.Conn, addr netip.Addr) (bool, error) {
	replies, err := routeTo(c, addr)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask for the route to %s: %w", addr, err)
	}
	for _, r := range replies {
		// struct rtmsg: the type is the eighth byte.
		if len(r.Data) >= unix.SizeofRtMsg && r.Data[7] == unix.RTN_LOCAL {
			return true, nil
		}
	}
	return false, nil
}
