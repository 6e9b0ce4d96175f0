package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

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
	tick := time.NewTicker(localEvery)
	defer tick.Stop()
	for end := time.Now().Add(localWithin); time.Now().Before(end); <-tick.C {
		r, err := routeTo(addr)
		unreachable := errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH)
		if r.Type == unix.RTN_LOCAL || err != nil && !unreachable {
			return err
		}
	}
	return fmt.Errorf("the kernel does not accept packets for %s within %v", addr, localWithin)
}
