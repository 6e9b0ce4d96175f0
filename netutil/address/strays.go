package address

import (
	"maps"
	"net/netip"
)

// Reserve makes these the addresses that are to be on this host only as Bind puts them there.
// What somebody else puts there of them is logged and told by Strays while nothing wants it here;
// it is not touched.
func (a *Binder) Reserve(addrs []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	strays := make(map[netip.Addr]error, len(addrs))
	for _, addr := range addrs {
		strays[addr.Unmap()] = a.strays[addr.Unmap()]
	}
	a.strays = strays
	if a.live { // else Run will look
		for addr := range strays {
			a.lookForStray(addr)
		}
	}
}

// Strays says of reserved addresses that somebody else has put on this host where they are, by an
// [ErrForeign]. Status does for those that are wanted.
func (a *Binder) Strays() map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := maps.Clone(a.strays)
	maps.DeleteFunc(out, func(_ netip.Addr, err error) bool { return err == nil })
	return out
}

// lookForStray notes whether a reserved address is a stray, and logs it.
func (a *Binder) lookForStray(addr netip.Addr) {
	was, reserved := a.strays[addr]
	if !reserved {
		return
	}
	a.strays[addr] = nil
	for _, on := range a.wants {
		if on[addr] != nil {
			return
		}
	}
	err := a.view.foreign(Binding{Addr: addr}, a.opts.Mark, func(int) bool { return false })
	a.strays[addr] = err
	switch {
	case sameError(err, was):
	case err != nil:
		a.log.Warn("VIP address is on this host, and not announced", "address", addr, "err", err)
	default:
		a.log.Info("VIP address is on this host no more", "address", addr, "after", was)
	}
}
