package netutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// attrProto is IFA_PROTO, known since Linux 5.18; older kernels ignore it.
const attrProto = 11

// encodeAddress makes an ifaddrmsg with its attributes.
func encodeAddress(a address) ([]byte, error) {
	family := byte(unix.AF_INET)
	if a.ip.Is6() {
		family = unix.AF_INET6
	}
	header := []byte{family, byte(a.subnet.Bits()), 0, a.scope}
	header = binary.NativeEndian.AppendUint32(header, uint32(a.link))

	// struct ifa_cacheinfo: preferred, valid, and two times that only the kernel sets.
	lifetimes := binary.NativeEndian.AppendUint32(nil, a.preferred)
	lifetimes = binary.NativeEndian.AppendUint32(lifetimes, a.valid)
	lifetimes = append(lifetimes, make([]byte, 8)...)

	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.IFA_LOCAL, a.ip.AsSlice())
	attrs.Bytes(unix.IFA_ADDRESS, a.subnet.Addr().AsSlice())
	attrs.Uint32(unix.IFA_FLAGS, a.flags)
	attrs.Bytes(unix.IFA_CACHEINFO, lifetimes)
	if a.label != "" {
		attrs.String(unix.IFA_LABEL, a.label)
	}
	if a.proto != 0 {
		attrs.Uint8(attrProto, a.proto)
	}
	encoded, err := attrs.Encode()
	return append(header, encoded...), err
}

// decodeAddress reads an ifaddrmsg; ok is false for families other than IPv4 and IPv6.
func decodeAddress(b []byte) (a address, ok bool, err error) {
	if len(b) < unix.SizeofIfAddrmsg {
		return address{}, false, errors.New("address message is too short")
	}
	if b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return address{}, false, nil
	}
	a = address{
		link:      int(binary.NativeEndian.Uint32(b[4:8])),
		scope:     b[3],
		flags:     uint32(b[2]),
		valid:     infinite,
		preferred: infinite,
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfAddrmsg:])
	if err != nil {
		return address{}, false, fmt.Errorf("address message: %w", err)
	}
	var local, far netip.Addr
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_ADDRESS:
			far, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_FLAGS:
			a.flags = attrs.Uint32()
		case unix.IFA_LABEL:
			a.label = attrs.String()
		case attrProto:
			a.proto = attrs.Uint8()
		case unix.IFA_CACHEINFO:
			if v := attrs.Bytes(); len(v) >= 8 {
				a.preferred = binary.NativeEndian.Uint32(v)
				a.valid = binary.NativeEndian.Uint32(v[4:])
			}
		}
	}
	if err := attrs.Err(); err != nil {
		return address{}, false, fmt.Errorf("address message: %w", err)
	}
	// IPv6 sends both only on point-to-point links.
	if !local.IsValid() {
		local = far
	}
	if !far.IsValid() {
		far = local
	}
	subnet, err := far.Prefix(int(b[1]))
	if err != nil || !local.IsValid() {
		return address{}, false, fmt.Errorf("address message: bad address %v, subnet %v/%d", local, far, b[1])
	}
	a.ip, a.subnet = local, subnet
	return a, true, nil
}

// decodeLink reads an ifinfomsg; ok is false if it is not about the link itself:
// bridges report ports that come and go in the same messages, under their own family.
func decodeLink(b []byte) (l link, ok bool, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return link{}, false, errors.New("link message is too short")
	}
	if b[0] != unix.AF_UNSPEC {
		return link{}, false, nil
	}
	flags := binary.NativeEndian.Uint32(b[8:12])
	l = link{
		index:    int(int32(binary.NativeEndian.Uint32(b[4:8]))),
		up:       flags&unix.IFF_UP != 0,
		loopback: flags&unix.IFF_LOOPBACK != 0,
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return link{}, false, fmt.Errorf("link message: %w", err)
	}
	for attrs.Next() {
		if attrs.Type() == unix.IFLA_IFNAME {
			l.name = attrs.String()
		}
	}
	if err := attrs.Err(); err != nil {
		return link{}, false, fmt.Errorf("link message: %w", err)
	}
	if l.name == "" {
		return link{}, false, errors.New("link message has no name")
	}
	return l, true, nil
}
