package arp

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"
)

const (
	hardwareEthernet = 1 // ARP hardware type (RFC 826)
	protocolICMPv6   = 58
)

// statement is a packet's statement that src uses an address.
type statement struct {
	addr netip.Addr
	src  mac
	// probe means that src does not use it yet, but probes for it.
	probe bool
}

// parse returns the statement in a frame, and false without one.
func parse(frame []byte) (statement, bool) {
	var f ethernet.Frame
	if err := f.UnmarshalBinary(frame); err != nil || f.VLAN != nil {
		return statement{}, false
	}
	switch f.EtherType {
	case ethernet.EtherTypeARP:
		return parseARP(mac(f.Source), f.Payload)
	case ethernet.EtherTypeIPv6:
		return parseNDP(mac(f.Source), f.Payload)
	}
	return statement{}, false
}

// parseARP parses an ARP packet. Requests and replies state that the sender uses its IP address (RFC 5227,
// section 2.4). A request without a sender's address is a probe (section 1.1).
func parseARP(from mac, b []byte) (statement, bool) {
	var p arp.Packet
	if err := p.UnmarshalBinary(b); err != nil || p.HardwareType != hardwareEthernet || !p.SenderIP.Is4() || !p.TargetIP.Is4() {
		return statement{}, false
	}
	if p.Operation != arp.OperationRequest && p.Operation != arp.OperationReply {
		return statement{}, false
	}
	src, ok := macOf(p.SenderHardwareAddr)
	if !ok {
		return statement{}, false
	}
	if src == (mac{}) {
		src = from
	}
	if !p.SenderIP.IsUnspecified() {
		return statement{addr: p.SenderIP, src: src}, true
	}
	return statement{addr: p.TargetIP, src: src, probe: true}, p.Operation == arp.OperationRequest
}

// parseNDP parses an IPv6 packet. A neighbour advertisement states that its target is used, and a solicitation that its
// source is: both change neighbours' entries (RFC 4861, section 7.2). A solicitation without a source is a probe of its
// target (RFC 4862, section 5.4.3). Packets that hosts must ignore (RFC 4861, section 7.1) contain no statement.
func parseNDP(from mac, b []byte) (statement, bool) {
	if len(b) < ipv6.HeaderLen || b[0]>>4 != ipv6.Version || b[6] != protocolICMPv6 || b[7] != ndpHopLimit {
		return statement{}, false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if len(b) < ipv6.HeaderLen+length || length < 8 {
		return statement{}, false
	}
	source, message := netip.AddrFrom16([16]byte(b[8:24])), b[ipv6.HeaderLen:ipv6.HeaderLen+length]
	if source.Is4In6() || message[1] != 0 || !checksumOK(b[8:ipv6.HeaderLen], message) {
		return statement{}, false
	}
	m, err := ndp.ParseMessage(message)
	if err != nil {
		return statement{}, false
	}
	switch m := m.(type) {
	case *ndp.NeighborAdvertisement:
		return statement{addr: m.TargetAddress, src: linkLayer(m.Options, ndp.Target, from)}, !m.TargetAddress.IsMulticast()
	case *ndp.NeighborSolicitation:
		if source.IsUnspecified() {
			return statement{addr: m.TargetAddress, src: from, probe: true}, !m.TargetAddress.IsMulticast()
		}
		return statement{addr: source, src: linkLayer(m.Options, ndp.Source, from)}, !source.IsMulticast()
	}
	return statement{}, false
}

// linkLayer returns the address in the option, or else the frame's source.
func linkLayer(options []ndp.Option, d ndp.Direction, from mac) mac {
	for _, o := range options {
		if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == d {
			if m, ok := macOf(l.Addr); ok {
				return m
			}
		}
	}
	return from
}

// checksumOK checks an ICMPv6 message with the addresses of its packet (RFC 4443, section 2.3).
func checksumOK(addresses, message []byte) bool {
	sum := uint32(len(message)) + protocolICMPv6
	for _, b := range [][]byte{addresses, message} {
		for len(b) >= 2 {
			sum += uint32(binary.BigEndian.Uint16(b))
			b = b[2:]
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum == 0xffff
}
