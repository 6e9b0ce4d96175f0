package rtnetlink

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/must"
)

var exact = cmp.Options{cmp.AllowUnexported(Address{}, Link{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

var (
	own4 = Address{Link: 1, IP: netip.MustParseAddr("10.99.0.10"), Subnet: netip.MustParsePrefix("10.99.0.10/32"), Scope: unix.RT_SCOPE_HOST,
		Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED, Label: "lo:herald", Valid: 10, Proto: 72}
	own6 = Address{Link: 2, IP: netip.MustParseAddr("fd00:99::10"), Subnet: netip.MustParsePrefix("fd00:99::10/128"),
		Flags: unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_DEPRECATED | unix.IFA_F_NODAD, Valid: 10, Proto: 72}
	permanent = Address{Link: 2, IP: netip.MustParseAddr("10.0.0.1"), Subnet: netip.MustParsePrefix("10.0.0.0/24"),
		Flags: unix.IFA_F_PERMANENT, Valid: Infinite, Preferred: Infinite}
)

func TestAddressMessage(t *testing.T) {
	for _, a := range []Address{
		own4,
		own6,
		permanent,
		{Link: 3, IP: netip.MustParseAddr("10.0.0.1"), Subnet: netip.MustParsePrefix("10.0.0.2/32"), Valid: 1, Preferred: 1},
		{Link: 3, IP: netip.MustParseAddr("fe80::1"), Subnet: netip.MustParsePrefix("fe80::/64"), Scope: unix.RT_SCOPE_LINK, Valid: Infinite, Preferred: Infinite, Proto: 3},
	} {
		b, err := EncodeAddress(a)
		if err != nil {
			t.Fatal(err)
		}
		want := a
		if a.Subnet.Contains(a.IP) { // the message has the address itself; the decoder masks it
			want.Subnet = a.Subnet.Masked()
		}
		got, ok, err := decodeAddress(b)
		if diff := cmp.Diff(want, got, exact); diff != "" || !ok || err != nil {
			t.Errorf("ok %v, error %v (-want +got):\n%s", ok, err, diff)
		}
	}
}

// linkMessage returns an ifinfomsg.
func linkMessage(family byte, index, flags uint32, name string) []byte {
	b := []byte{family, 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	attrs := netlink.NewAttributeEncoder()
	attrs.Uint32(unix.IFLA_MTU, 1500)
	if name != "" {
		attrs.String(unix.IFLA_IFNAME, name)
	}
	encoded, err := attrs.Encode()
	if err != nil {
		panic(err)
	}
	return append(b, encoded...)
}

func TestOtherMessage(t *testing.T) {
	if _, ok, err := decodeLink(linkMessage(unix.AF_BRIDGE, 2, unix.IFF_UP, "eth0")); ok || err != nil {
		t.Errorf("message about a bridge port: ok %v, error %v; want false, nil", ok, err)
	}
	if _, ok, err := decodeAddress([]byte{unix.AF_MCTP, 0, 0, 0, 1, 0, 0, 0}); ok || err != nil {
		t.Errorf("address of another family: ok %v, error %v; want false, nil", ok, err)
	}
}

func TestBrokenMessage(t *testing.T) {
	good := must.Get[[]byte](t)(EncodeAddress(own4))
	for name, b := range map[string][]byte{
		"empty":          nil,
		"short":          good[:7],
		"no address":     good[:8],
		"cut attribute":  good[:14],
		"prefix too big": append([]byte{unix.AF_INET, 33}, good[2:]...),
	} {
		if _, ok, err := decodeAddress(b); ok || err == nil {
			t.Errorf("address message, %s: ok %v, error %v; want an error", name, ok, err)
		}
	}
	link := linkMessage(0, 1, 0, "lo")
	for name, b := range map[string][]byte{
		"empty":         nil,
		"short":         link[:15],
		"no name":       linkMessage(0, 1, 0, ""),
		"cut attribute": link[:18],
	} {
		if _, ok, err := decodeLink(b); ok || err == nil {
			t.Errorf("link message, %s: ok %v, error %v; want an error", name, ok, err)
		}
	}
}

func FuzzDecodeAddress(f *testing.F) {
	for _, a := range []Address{own4, own6, permanent} {
		b, err := EncodeAddress(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok, err := decodeAddress(b)
		if err != nil || !ok {
			return
		}
		if !a.IP.IsValid() || !a.Subnet.IsValid() || a.Subnet != a.Subnet.Masked() {
			t.Fatalf("bad address %+v", a)
		}
	})
}

func FuzzDecodeLink(f *testing.F) {
	f.Add(linkMessage(0, 1, unix.IFF_UP|unix.IFF_LOOPBACK, "lo"))
	f.Add(linkMessage(unix.AF_BRIDGE, 2, 0, "eth0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok, err := decodeLink(b); ok && (err != nil || l.Name == "") {
			t.Fatalf("bad link %+v, error %v", l, err)
		}
	})
}

// A table that changes during the reading is read again, up to dumpAttempts times.
func TestInterruptedDump(t *testing.T) {
	for _, tt := range []struct {
		interruptions int
		ok            bool
	}{{0, true}, {3, true}, {dumpAttempts, false}} {
		asked := 0
		r := &Conn{conn: nltest.Dial(func(req []netlink.Message) ([]netlink.Message, error) {
			var flags netlink.HeaderFlags
			if asked++; asked <= tt.interruptions {
				flags = netlink.DumpInterrupted
			}
			return nltest.Multipart([]netlink.Message{
				{Header: netlink.Header{Type: unix.RTM_NEWLINK, Sequence: req[0].Header.Sequence, PID: nltest.PID}, Data: linkMessage(0, 1, 0, "lo")},
				{Header: netlink.Header{Type: unix.RTM_NEWLINK, Sequence: req[0].Header.Sequence, PID: nltest.PID, Flags: flags}, Data: linkMessage(0, 2, unix.IFF_UP, "eth0")},
				{Header: netlink.Header{Type: netlink.Done, Sequence: req[0].Header.Sequence, PID: nltest.PID}},
			})
		})}
		got, err := dump(r, unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), decodeLink)
		if (err == nil) != tt.ok {
			t.Errorf("%d interruptions: error %v", tt.interruptions, err)
		}
		if want := []Link{{Index: 1, Name: "lo", MTU: 1500}, {Index: 2, Name: "eth0", AdminUp: true, MTU: 1500}}; tt.ok {
			if diff := cmp.Diff(want, got, exact); diff != "" {
				t.Errorf("%d interruptions (-want +got):\n%s", tt.interruptions, diff)
			}
		}
	}
}

// unresponsive is a socket that never answers.
type unresponsive struct{}

func (unresponsive) Close() error                         { return nil }
func (unresponsive) Send(netlink.Message) error           { return nil }
func (unresponsive) SendMessages([]netlink.Message) error { return nil }
func (unresponsive) Receive() ([]netlink.Message, error)  { return nil, os.ErrDeadlineExceeded }

// A call without an answer is repeated.
func TestNoAnswer(t *testing.T) {
	r := &Conn{conn: netlink.NewConn(unresponsive{}, 1)}
	defer r.Close()
	links, addrs, err := r.Dump()
	if err != nil || len(links) == 0 || len(addrs) == 0 {
		t.Errorf("%d links, %d addresses, error %v", len(links), len(addrs), err)
	}
}
