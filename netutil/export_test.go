package netutil

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// RefreshAll is what Run does at every third of the lifetime, which is a minute at most.
func RefreshAll(a *Addresses) { a.refreshDue(time.Now().Add(time.Minute)) }

// Told returns a function that waits for the next address that Run would be told of.
func Told(netNS int) (next func() (ip netip.Addr, gone bool, err error), stop func(), err error) {
	w, err := (&rtnetlink{netns: netNS, buffer: defaultBuffer, mark: defaultMark}).watch()
	if err != nil {
		return nil, nil, err
	}
	next = func() (netip.Addr, bool, error) {
		for {
			events, err := w.next()
			if err != nil {
				return netip.Addr{}, false, err
			}
			for _, e := range events { // the kernel sends each by itself
				if e.address != nil {
					return e.address.ip, e.gone, nil
				}
			}
		}
	}
	return next, w.close, nil
}

// AddToLo adds an address as Herald does where it thinks there is none.
func AddToLo(netNS int, ip netip.Addr) error {
	k := &rtnetlink{netns: netNS}
	defer k.close()
	return k.add(vip(link{index: 1, name: "lo", up: true, loopback: true}, ip, defaultLifetime, defaultMark))
}

// ErrExists is what AddToLo fails with if lo has the address.
const ErrExists = unix.EEXIST

// WatchLinksWith is WatchLinks with room for few changes at a time.
func WatchLinksWith(ctx context.Context, buffer int, changed func(map[string]Link)) error {
	return watchLinks(ctx, &rtnetlink{buffer: buffer, mark: defaultMark}, changed)
}
