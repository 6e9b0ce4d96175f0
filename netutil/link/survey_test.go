package link

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// neighbourMessage is an ndmsg as the kernel makes it.
func neighbourMessage(t testing.TB, link int, state uint16, addr netip.Addr, mac net.HardwareAddr) []byte {
	t.Helper()
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = unix.AF_INET
	if addr.Is6() {
		b[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(b[4:], uint32(link))
	binary.NativeEndian.PutUint16(b[8:], state)
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.NDA_DST, addr.AsSlice())
	if mac != nil {
		attrs.Bytes(unix.NDA_LLADDR, mac)
	}
	encoded, err := attrs.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(b, encoded...)
}

func TestDecodeNeighbour(t *testing.T) {
	addr, mac := netip.MustParseAddr("10.0.0.2"), net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, test := range []struct {
		name  string
		state uint16
		mac   net.HardwareAddr
		known bool
	}{
		{"reachable", unix.NUD_REACHABLE, mac, true},
		{"stale", unix.NUD_STALE, mac, true},
		{"by hand", unix.NUD_PERMANENT, mac, true},
		{"being asked for", unix.NUD_INCOMPLETE, nil, false},
		{"did not answer", unix.NUD_FAILED, nil, false},
		{"did not answer any more", unix.NUD_FAILED, mac, false},
		{"multicast", unix.NUD_NOARP, mac, false},
	} {
		n, ok, err := decodeNeighbour(neighbourMessage(t, 3, test.state, addr, test.mac))
		if err != nil || ok != test.known {
			t.Errorf("%s: known %t, %v", test.name, ok, err)
		}
		if ok && (n.Addr != addr || n.MAC.String() != mac.String()) {
			t.Errorf("%s: got %+v", test.name, n)
		}
	}
}

func FuzzDecodeNeighbour(f *testing.F) {
	f.Add(neighbourMessage(f, 3, unix.NUD_REACHABLE, netip.MustParseAddr("10.0.0.2"), net.HardwareAddr{2, 0, 0, 0, 0, 2}))
	f.Add(neighbourMessage(f, 3, unix.NUD_FAILED, netip.MustParseAddr("fd00::2"), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok, err := decodeNeighbour(b); ok && (err != nil || !n.Addr.IsValid() || len(n.MAC) == 0) {
			t.Fatalf("bad neighbour %+v, error %v", n, err)
		}
	})
}
