package link

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestResolved(t *testing.T) {
	addr, mac := netip.MustParseAddr("10.0.0.2"), net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, test := range []struct {
		name  string
		state int
		mac   net.HardwareAddr
		known bool
	}{
		{"reachable", unix.NUD_REACHABLE, mac, true},
		{"stale", unix.NUD_STALE, mac, true},
		{"permanent", unix.NUD_PERMANENT, mac, true},
		{"incomplete", unix.NUD_INCOMPLETE, nil, false},
		{"failed", unix.NUD_FAILED, nil, false},
		{"failed after an answer", unix.NUD_FAILED, mac, false},
		{"multicast", unix.NUD_NOARP, mac, false},
	} {
		got := resolved([]netlink.Neigh{{IP: addr.AsSlice(), State: test.state, HardwareAddr: test.mac}})
		if known := len(got) == 1; known != test.known || known && (got[0].Addr != addr || got[0].MAC.String() != mac.String()) {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}
