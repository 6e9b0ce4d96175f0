package link_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"

	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// After AwaitLocal the kernel accepts packets for an address that it acknowledged before.
func TestAwaitLocal(t *testing.T) {
	h := nettest.NewHost(t)
	h.AddVeth("eth0", "far")
	h.In(func() {
		for i := range 50 {
			addr := netip.MustParseAddr(fmt.Sprintf("fd00::%x", 100+i))
			vip := nettest.Parse(t, addr.String()+"/128")
			vip.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
			if err := h.NL.AddrAdd(h.Link("eth0"), vip); err != nil {
				t.Error(err)
				return
			}
			// The kernel's worker may wait for a CPU longer than AwaitLocal waits for it.
			wait.Until(t, "the address is local", func() bool { return link.AwaitLocal(addr) == nil })
			routes, err := h.NL.RouteGet(addr.AsSlice())
			if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("%s is not local after AwaitLocal: %v, error %v", addr, routes, err)
			}
		}
		if err := link.AwaitLocal(netip.MustParseAddr("fd00::1")); err == nil {
			t.Error("AwaitLocal of a foreign address: no error")
		}
		if err := link.AwaitLocal(netip.MustParseAddr("192.0.2.1")); err != nil {
			t.Errorf("AwaitLocal of an IPv4 address: %v", err)
		}
	})
}
