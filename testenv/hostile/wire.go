package hostile

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// This file makes BGP messages octet by octet, since a library would not make invalid ones.

// The types of messages (RFC 4271 section 4.1, RFC 2918).
const (
	typeOpen         = 1
	typeUpdate       = 2
	typeNotification = 3
	typeKeepalive    = 4
	typeRouteRefresh = 5
)

// The types of path attributes used here.
const (
	attrOrigin         = 1
	attrASPath         = 2
	attrNextHop        = 3
	attrMED            = 4
	attrLocalPref      = 5
	attrAggregator     = 7
	attrCommunities    = 8
	attrMPReach        = 14
	attrMPUnreach      = 15
	attrAS4Path        = 17
	attrAS4Aggregator  = 18
	attrLargeCommunity = 32
)

// The flags of a path attribute (RFC 4271 section 4.3).
const (
	optional   = 0x80
	transitive = 0x40
	partial    = 0x20
	extended   = 0x10 // a length of two octets
)

// The codes of capabilities used here.
const (
	capMultiprotocol   = 1
	capRouteRefresh    = 2
	capExtendedMessage = 6
	capFourOctetASN    = 65
)

// Address families (RFC 4760).
const (
	afiIPv4, afiIPv6 = 1, 2
	safiUnicast      = 1
)

const (
	headerLength = 19
	maxMessage   = 4096  // RFC 4271 section 4.1
	maxExtended  = 65535 // RFC 8654
)

func uint16s(values ...uint16) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}

func uint32s(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// message puts a header before a body.
func message(kind byte, body ...[]byte) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 16), 0, 0, kind)
	return setLength(append(b, slices.Concat(body...)...))
}

// setLength writes a message's real length into its header.
func setLength(m []byte) []byte {
	if len(m) >= headerLength {
		binary.BigEndian.PutUint16(m[16:], uint16(len(m)))
	}
	return m
}

// withLength returns a copy of m with another length in its header.
func withLength(m []byte, length int) []byte {
	m = slices.Clone(m)
	binary.BigEndian.PutUint16(m[16:], uint16(length))
	return m
}

// open returns an OPEN (RFC 4271 section 4.2).
func open(version byte, asn, hold uint16, id netip.Addr, parameters ...[]byte) []byte {
	all := slices.Concat(parameters...)
	return message(typeOpen, []byte{version}, uint16s(asn, hold), id.AsSlice(), []byte{byte(len(all))}, all)
}

// parameter returns an optional parameter of an OPEN, capabilities the parameter of capabilities.
func parameter(kind byte, value ...[]byte) []byte {
	all := slices.Concat(value...)
	return append([]byte{kind, byte(len(all))}, all...)
}

func capabilities(list ...[]byte) []byte { return parameter(2, list...) }

func capability(code byte, value ...byte) []byte {
	return append([]byte{code, byte(len(value))}, value...)
}

// update returns an UPDATE (RFC 4271 section 4.3).
func update(withdrawn, attributes, nlri []byte) []byte {
	return message(typeUpdate, uint16s(uint16(len(withdrawn))), withdrawn, uint16s(uint16(len(attributes))), attributes, nlri)
}

// attribute returns a path attribute, with a length of two octets if necessary.
func attribute(flags, kind byte, value ...[]byte) []byte {
	all := slices.Concat(value...)
	if len(all) > 255 {
		flags |= extended
	}
	if flags&extended != 0 {
		return slices.Concat([]byte{flags, kind}, uint16s(uint16(len(all))), all)
	}
	return append([]byte{flags, kind, byte(len(all))}, all...)
}

// segment returns a part of an AS path: kind 1 is a set, 2 a sequence.
func segment(kind byte, asns ...uint32) []byte {
	return append([]byte{kind, byte(len(asns))}, uint32s(asns...)...)
}

// segment2 returns one with ASNs of two octets.
func segment2(kind byte, asns ...uint16) []byte {
	return append([]byte{kind, byte(len(asns))}, uint16s(asns...)...)
}

// nlri encodes prefixes as in UPDATEs.
func nlri(prefixes ...netip.Prefix) []byte {
	var b []byte
	for _, p := range prefixes {
		b = append(b, byte(p.Bits()))
		b = append(b, p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
	}
	return b
}

// mpReach returns the value of MP_REACH_NLRI, mpUnreach that of MP_UNREACH_NLRI (RFC 4760).
func mpReach(afi uint16, safi byte, nextHop, routes []byte) []byte {
	return slices.Concat(uint16s(afi), []byte{safi, byte(len(nextHop))}, nextHop, []byte{0}, routes)
}

func mpUnreach(afi uint16, safi byte, routes []byte) []byte {
	return slices.Concat(uint16s(afi), []byte{safi}, routes)
}

func notification(code, subcode byte, data ...byte) []byte {
	return message(typeNotification, []byte{code, subcode}, data)
}

func routeRefresh(afi uint16, safi byte) []byte {
	return message(typeRouteRefresh, uint16s(afi), []byte{0, safi})
}

func keepalive() []byte { return message(typeKeepalive) }
