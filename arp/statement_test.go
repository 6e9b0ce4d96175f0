package arp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"
)

var (
	host4    = netip.MustParseAddr("10.0.0.7")
	host6    = netip.MustParseAddr("fe80::7")
	allNodes = netip.IPv6LinkLocalAllNodes()
)

// edit replaces bytes of a frame at an offset.
func edit(frame []byte, at int, b ...byte) []byte {
	frame = slices.Clone(frame)
	copy(frame[at:], b)
	return frame
}

// tagged returns the frame with a VLAN tag.
func tagged(frame []byte) []byte { return slices.Insert(slices.Clone(frame), 12, 0x81, 0, 0, 10) }

func sourceOption(src mac) []ndp.Option {
	return []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: src.hardware()}}
}

// frames are frames on a wire, each with its statement, if any.
var frames = map[string]struct {
	frame []byte
	want  statement
}{
	"announcement, request":    {announcement(outsider, vip4)[0], statement{addr: vip4, src: outsider}},
	"announcement, reply":      {announcement(outsider, vip4)[1], statement{addr: vip4, src: outsider}},
	"request from the address": {arpFrame(outsider, arp.OperationRequest, vip4, mac{}, host4), statement{addr: vip4, src: outsider}},
	"answer to a probe":        {arpFrame(outsider, arp.OperationReply, vip4, self, netip.IPv4Unspecified()), statement{addr: vip4, src: outsider}},
	"request for the address":  {arpFrame(outsider, arp.OperationRequest, host4, mac{}, vip4), statement{addr: host4, src: outsider}},
	"ARP probe":                {probe(outsider, vip4), statement{addr: vip4, src: outsider, probe: true}},
	"reply without a sender":   {arpFrame(outsider, arp.OperationReply, netip.IPv4Unspecified(), self, vip4), statement{}},
	"sent by a proxy":          {edit(announcement(outsider, vip4)[0], 6, self[:]...), statement{addr: vip4, src: outsider}},
	"without a sender's MAC":   {edit(announcement(outsider, vip4)[0], 22, make([]byte, 6)...), statement{addr: vip4, src: outsider}},
	"ARP of another hardware":  {edit(announcement(outsider, vip4)[0], 14, 0, 6), statement{}},
	"ARP of another protocol":  {edit(announcement(outsider, vip4)[0], 18, 6, 16), statement{}},
	"reverse ARP":              {edit(announcement(outsider, vip4)[0], 20, 0, 3), statement{}},
	"cut ARP":                  {announcement(outsider, vip4)[0][:41], statement{}},
	"of a VLAN":                {tagged(announcement(outsider, vip4)[0]), statement{}},
	"of another protocol":      {edit(announcement(outsider, vip4)[0], 12, 8, 0), statement{}},
	"empty":                    {nil, statement{}},

	"neighbour advertisement": {announcement(outsider, vip6)[0], statement{addr: vip6, src: outsider}},
	"advertisement sent by a proxy": {edit(announcement(outsider, vip6)[0], 6, self[:]...),
		statement{addr: vip6, src: outsider}},
	"advertisement without option": {ndpFrame(outsider, host6, allNodes, &ndp.NeighborAdvertisement{TargetAddress: vip6}),
		statement{addr: vip6, src: outsider}},
	"answer to a solicitation": {ndpFrame(outsider, vip6, host6, &ndp.NeighborAdvertisement{Solicited: true, TargetAddress: vip6}),
		statement{addr: vip6, src: outsider}},
	"solicitation from the address": {ndpFrame(self, vip6, allNodes, &ndp.NeighborSolicitation{TargetAddress: host6, Options: sourceOption(outsider)}),
		statement{addr: vip6, src: outsider}},
	"solicitation of the address": {ndpFrame(outsider, host6, allNodes, &ndp.NeighborSolicitation{TargetAddress: vip6}),
		statement{addr: host6, src: outsider}},
	"duplicate address detection": {probe(outsider, vip6), statement{addr: vip6, src: outsider, probe: true}},
	"other ICMPv6":                {ndpFrame(outsider, vip6, allNodes, &ndp.RouterSolicitation{}), statement{}},
	"beyond a router":             {edit(announcement(outsider, vip6)[0], ipv6HopLimit, 254), statement{}},
	"bad checksum":                {edit(announcement(outsider, vip6)[0], icmpv6Type+2, 0, 0), statement{}},
	"bad code":                    {edit(announcement(outsider, vip6)[0], icmpv6Type+1, 1, 0x59, 0x6a), statement{}},
	"UDP":                         {edit(announcement(outsider, vip6)[0], ipv6Next, 17), statement{}},
	"cut IPv6":                    {announcement(outsider, vip6)[0][:85], statement{}},
	"only an IPv6 header":         {edit(announcement(outsider, vip6)[0], 18, 0, 0), statement{}},
	"wrong IP version":            {edit(announcement(outsider, vip6)[0], 14, 0x45), statement{}},
	"multicast target":            {ndpFrame(outsider, host6, allNodes, &ndp.NeighborAdvertisement{TargetAddress: allNodes}), statement{}},
}

func TestParse(t *testing.T) {
	for name, tt := range frames {
		got, ok := parse(tt.frame)
		if ok != (tt.want != statement{}) || ok && got != tt.want {
			t.Errorf("%s: %v, %+v, want %+v", name, ok, got, tt.want)
		}
	}
}

// passes reports whether the filter passes a frame for this host to the socket of its family.
func passes(t testing.TB, frame []byte, watched ...netip.Addr) bool {
	t.Helper()
	f := inet4
	if len(frame) >= 14 && binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
		f = inet6
	}
	vm, err := bpf.NewVM(matchStatements(f, slices.DeleteFunc(watched, func(a netip.Addr) bool { return familyOf(a) != f })))
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func many(n int, a netip.Addr) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		out[i], a = a, a.Next()
	}
	return out
}

// The filter passes statements about watched addresses, and hardly anything else.
func TestFilter(t *testing.T) {
	for name, tt := range frames {
		if tt.want == (statement{}) {
			continue
		}
		if passes(t, tt.frame) {
			t.Errorf("%s passes without watched addresses", name)
		}
		if passes(t, tt.frame, tt.want.addr.Next(), tt.want.addr.Prev()) {
			t.Errorf("%s passes with other watched addresses", name)
		}
		if !passes(t, tt.frame, tt.want.addr.Prev(), tt.want.addr, tt.want.addr.Next()) {
			t.Errorf("%s does not pass", name)
		}
		few := many(filterLimit, tt.want.addr.Next())
		if passes(t, tt.frame, few...) {
			t.Errorf("%s passes with %d other watched addresses", name, len(few))
		}
		if !passes(t, tt.frame, append(few, few[len(few)-1].Next())...) {
			t.Errorf("%s does not pass with more watched addresses than filterLimit", name)
		}
	}
	for _, name := range []string{"other ICMPv6", "beyond a router", "UDP"} {
		if passes(t, frames[name].frame, vip6) {
			t.Errorf("%s passes", name)
		}
	}
	similar := netip.MustParseAddr("fd01::99") // differs in its first group
	if passes(t, announcement(outsider, similar)[0], vip6) {
		t.Errorf("a statement about %s passes", similar)
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		if _, err := filter(familyOf(vip), many(filterLimit, vip)); err != nil {
			t.Errorf("%v: %v", vip, err)
		}
	}
}

// No frame makes parse panic, and the filter drops no statement.
func FuzzParse(f *testing.F) {
	for _, tt := range frames {
		f.Add(tt.frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, ok := parse(frame)
		if !ok {
			return
		}
		if !c.addr.IsValid() || c.addr.Zone() != "" || c.addr.Is4In6() || c.addr.IsMulticast() && c.addr.Is6() {
			t.Fatalf("bad statement %+v", c)
		}
		if announceable(c.addr) && !passes(t, frame, c.addr) {
			t.Fatalf("the filter drops %+v", c)
		}
	})
}
