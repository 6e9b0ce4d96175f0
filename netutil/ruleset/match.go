package ruleset

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Headers for [Load].
const (
	Network   = expr.PayloadBaseNetworkHeader
	Transport = expr.PayloadBaseTransportHeader
)

// Load loads part of a packet header into register 1. All functions below use this register.
func Load(base expr.PayloadBase, offset, length uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}}
}

// Meta loads metadata of the packet.
func Meta(key expr.MetaKey) []expr.Any { return []expr.Any{&expr.Meta{Key: key, Register: 1}} }

// Equal continues if the loaded value equals data.
func Equal(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// NotEqual continues if the loaded value differs from data.
func NotEqual(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data}}
}

// In continues if the named set contains the loaded value.
func In(name string) []expr.Any { return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name}} }

// NotIn continues if the named set lacks the loaded value.
func NotIn(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name, Invert: true}}
}

// TCP continues if the packet is TCP.
func TCP() []expr.Any { return Join(Meta(expr.MetaKeyL4PROTO), Equal(unix.IPPROTO_TCP)) }

// SYN continues if the segment opens a connection: SYN without FIN, RST and ACK (RFC 9293, section 3.1).
func SYN() []expr.Any {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	flags := []expr.Any{&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}}}
	return Join(Load(Transport, 13, 1), flags, Equal(syn))
}

// To continues if the packet's destination is addr.
func To(addr netip.Addr) []expr.Any {
	if addr.Is4() {
		return Join(Meta(expr.MetaKeyNFPROTO), Equal(unix.NFPROTO_IPV4), Load(Network, 16, 4), Equal(addr.AsSlice()...))
	}
	return Join(Meta(expr.MetaKeyNFPROTO), Equal(unix.NFPROTO_IPV6), Load(Network, 24, 16), Equal(addr.AsSlice()...))
}

// Local continues if the packet's destination is an address of this host.
func Local() []expr.Any {
	return Join([]expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}},
		Equal(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...))
}

// Translated parts of a connection: IPS_SRC_NAT and IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const (
	Source      = 1 << 4
	Destination = 1 << 5
)

// Translated continues if the kernel translates any of the given parts of the packet's connection.
func Translated(parts uint32) []expr.Any {
	return Join([]expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, parts), Xor: make([]byte, 4)},
	}, NotEqual(0, 0, 0, 0))
}

// Loopback returns the link type of lo as [Meta] loads it.
func Loopback() []byte { return binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK) }

// LinkName returns a link's name as [Meta] loads it.
func LinkName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ)...)[:unix.IFNAMSIZ]
}

// Join concatenates expressions.
func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }
