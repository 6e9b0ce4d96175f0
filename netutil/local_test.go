package netutil_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil"
)

// What the kernel has acknowledged it takes packets for only later: after the
// wait it always does.
func TestAwaitLocal(t *testing.T) {
	h := newHost(t)
	h.addVeth("eth0", "far")
	h.in(func() {
		for i := range 50 {
			addr := netip.MustParseAddr(fmt.Sprintf("fd00::%x", 100+i))
			vip := parse(t, addr.String()+"/128")
			vip.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
			if err := h.nl.AddrAdd(h.link("eth0"), vip); err != nil {
				t.Error(err)
				return
			}
			// The kernel's worker may have to wait longer for a CPU than AwaitLocal waits for it.
			eventually(t, "it is local", func() bool { return netutil.AwaitLocal(addr) == nil })
			routes, err := h.nl.RouteGet(addr.AsSlice())
			if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("%s is not local after the wait: %v, %v", addr, routes, err)
			}
		}
		if err := netutil.AwaitLocal(netip.MustParseAddr("fd00::1")); err == nil {
			t.Error("an address that is nowhere is local")
		}
		if err := netutil.AwaitLocal(netip.MustParseAddr("192.0.2.1")); err != nil {
			t.Errorf("IPv4 is waited for: %v", err)
		}
	})
}
