package address

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// RefreshAll is what Run does at every third of the lifetime, which is a minute at most.
func RefreshAll(a *Binder) { a.refreshDue(time.Now().Add(time.Minute)) }

// Told returns a function that waits for the next address that a watcher reports to Run.
func Told(netNS int) (next func() (ip netip.Addr, gone bool, err error), stop func(), err error) {
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

// AddToLo adds an address as Herald does where it thinks there is none.
func AddToLo(netNS int, ip netip.Addr) error {
	k := &rtnetlink.Conn{NetNS: netNS}
	defer k.Close()
	return k.Add(vip(link{Index: 1, Name: "lo", AdminUp: true, Loopback: true}, ip, defaultLifetime, DefaultMark))
}

// ErrExists is what AddToLo fails with if lo has the address.
const ErrExists = unix.EEXIST
