package link

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

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
