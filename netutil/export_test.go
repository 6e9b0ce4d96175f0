package netutil

import "net/netip"

// RefreshAll is what Run does at every third of the lifetime.
func RefreshAll(a *Addresses) { a.refreshAll(a.opts.Lifetime) }

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
