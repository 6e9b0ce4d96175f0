package holders

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"

	"github.com/herald-vip/herald/testenv/must"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	vip6 = netip.MustParseAddr("fd00:4::10")
	own4 = netip.MustParseAddr("10.4.0.8")
	own6 = netip.MustParseAddr("fd00:4::8")
)

// reply returns an ARP reply from the VIP.
func reply(t testing.TB, dst netip.Addr) []byte {
	p := must.Get[*arp.Packet](t)(arp.NewPacket(arp.OperationReply, macA, vip4, macB, dst))
	body := must.Get[[]byte](t)(p.MarshalBinary())
	return must.Get[[]byte](t)(frame(macA, macB, ethernet.EtherTypeARP, body, nil))
}

// advertisement returns a neighbour advertisement of the VIP.
func advertisement(t testing.TB, dst netip.Addr) []byte {
	na := &ndp.NeighborAdvertisement{Override: true, TargetAddress: vip6, Options: []ndp.Option{
		&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: macA},
	}}
	body := must.Get[[]byte](t)(ndp.MarshalMessageChecksum(na, vip6, dst))
	return must.Get[[]byte](t)(frame(macA, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, ethernet.EtherTypeIPv6, packet6(vip6, dst, body), nil))
}

// announcement returns a gratuitous ARP request or an unsolicited advertisement.
func announcement(t testing.TB, mac net.HardwareAddr, vip netip.Addr) []byte {
	if vip.Is4() {
		return must.Get[[]byte](t)(question(station{mac, vip}, vip))
	}
	f := advertisement(t, netip.MustParseAddr("ff02::1"))
	copy(f[6:], mac)
	return f
}

// reversed swaps the two ends of an echo, and makes it a reply.
func reversed(data []byte) []byte {
	b := slices.Clone(data)
	copy(b[0:6], data[6:12])
	copy(b[6:12], data[0:6])
	if b[12] == 8 {
		copy(b[headerLen+12:], data[headerLen+16:headerLen+20])
		copy(b[headerLen+16:], data[headerLen+12:headerLen+16])
		b[headerLen+header4Len] = 0
	} else {
		copy(b[headerLen+8:], data[headerLen+24:headerLen+40])
		copy(b[headerLen+24:], data[headerLen+8:headerLen+24])
		b[headerLen+header6Len] = 129
	}
	return b
}

func TestRead(t *testing.T) {
	echo4 := must.Get[[]byte](t)(echo(station{macB, own4}, station{macA, vip4}, 7))
	echo6 := must.Get[[]byte](t)(echo(station{macB, own6}, station{macA, vip6}, 7))
	for _, test := range []struct {
		name  string
		frame []byte
		want  glimpse
	}{
		{"an ARP request", must.Get[[]byte](t)(question(station{macB, own4}, vip4)), glimpse{macB, Asks, own4, vip4, 0}},
		{"an ARP reply", reply(t, own4), glimpse{macA, Answers, vip4, own4, 0}},
		{"a gratuitous request", announcement(t, macA, vip4), glimpse{macA, Announces, vip4, vip4, 0}},
		{"a gratuitous reply", reply(t, vip4), glimpse{macA, Announces, vip4, vip4, 0}},
		{"an ARP request from the VIP", must.Get[[]byte](t)(question(station{macA, vip4}, own4)), glimpse{macA, Asks, vip4, own4, 0}},
		{"a solicitation", must.Get[[]byte](t)(question(station{macB, own6}, vip6)), glimpse{macB, Asks, own6, vip6, 0}},
		{"an advertisement", advertisement(t, own6), glimpse{macA, Answers, vip6, own6, 0}},
		{"an unsolicited one", announcement(t, macA, vip6), glimpse{macA, Announces, vip6, netip.MustParseAddr("ff02::1"), 0}},
		{"an echo", echo4, glimpse{macB, probing, vip4, own4, 7}},
		{"its reply", reversed(echo4), glimpse{macA, Accepts, vip4, own4, 7}},
		{"an echo over IPv6", echo6, glimpse{macB, probing, vip6, own6, 7}},
		{"its reply over IPv6", reversed(echo6), glimpse{macA, Accepts, vip6, own6, 7}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := must.Get[glimpse](t)(read(test.frame))
			if got.from.String() != test.want.from.String() {
				t.Errorf("from %v, want %v", got.from, test.want.from)
			}
			got.from, test.want.from = nil, nil
			if got.act != test.want.act || got.vip != test.want.vip || got.peer != test.want.peer || got.number != test.want.number {
				t.Errorf("read %+v, want %+v", got, test.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(reply(f, own4))
	f.Add(advertisement(f, own6))
	f.Add(must.Get[[]byte](f)(question(station{macB, own6}, vip6)))
	f.Add(must.Get[[]byte](f)(echo(station{macB, own4}, station{macA, vip4}, 7)))
	f.Add(reversed(must.Get[[]byte](f)(echo(station{macB, own6}, station{macA, vip6}, 7))))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := read(data)
		if err == nil && g.act == "" {
			t.Errorf("read %+v", g)
		}
	})
}
