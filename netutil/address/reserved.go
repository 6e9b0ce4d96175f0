package address

import (
	"maps"
	"net/netip"
)

// Reserve replaces the reserved addresses: only Bind should put them on this host. Foreign copies of them are logged and
// reported by Foreign while no binding wants the address. They are not touched.
func (a *Binder) Reserve(addrs []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := make(map[netip.Addr]error, len(addrs))
	for _, addr := range addrs {
		reserved[addr.Unmap()] = a.reserved[addr.Unmap()]
	}
	a.reserved = reserved
	if a.live { // otherwise Run looks when it subscribes
		for addr := range reserved {
			a.checkReserved(addr)
		}
	}
}

// Foreign returns an [ErrForeign] with the place of each reserved address that another program put on this host. For
// wanted addresses Status reports it.
func (a *Binder) Foreign() map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := maps.Clone(a.reserved)
	maps.DeleteFunc(out, func(_ netip.Addr, err error) bool { return err == nil })
	return out
}

// checkReserved notes and logs whether another program put a reserved address on this host.
func (a *Binder) checkReserved(addr netip.Addr) {
	before, ok := a.reserved[addr]
	if !ok {
		return
	}
	a.reserved[addr] = nil
	for _, on := range a.wants {
		if on[addr] != nil {
			return
		}
	}
	err := a.view.foreign(Binding{Addr: addr}, a.opts.Mark, func(int) bool { return false })
	a.reserved[addr] = err
	switch {
	case sameError(err, before):
	case err != nil:
		a.log.Warn("VIP address is on this host but not announced", "address", addr, "err", err)
	default:
		a.log.Info("VIP address is no longer on this host", "address", addr, "after", before)
	}
}
