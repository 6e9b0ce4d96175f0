package address

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// RefreshAll refreshes all addresses, as Run does after each third of the lifetime.
func RefreshAll(a *Binder) { a.refreshDue(time.Now().Add(time.Minute)) }

// Reported returns a function that waits for the next address that a watcher reports.
func Reported(netNS int) (next func() (ip netip.Addr, gone bool, err error), stop func(), err error) {
	w, err := (&rtnetlink.Watcher{NetNS: netNS, Mark: DefaultMark}).Subscribe()
	if err != nil {
		return nil, nil, err
	}
	var waiting []event
	next = func() (netip.Addr, bool, error) {
		for {
			for len(waiting) > 0 {
				e := waiting[0]
				if waiting = waiting[1:]; e.Address != nil {
					return e.Address.IP, e.Gone, nil
				}
			}
			<-w.Ready()
			if waiting, err = w.Take(); err != nil {
				return netip.Addr{}, false, err
			}
		}
	}
	return next, w.Close, nil
}

// AddToLo adds an address as Herald does when its view lacks it.
func AddToLo(netNS int, ip netip.Addr) error {
	k := &rtnetlink.Conn{NetNS: netNS}
	defer k.Close()
	return k.Add(vip(link{Index: 1, Name: "lo", AdminUp: true, Loopback: true}, ip, defaultLifetime, DefaultMark))
}

// ErrExists is AddToLo's error if lo has the address.
const ErrExists = unix.EEXIST
