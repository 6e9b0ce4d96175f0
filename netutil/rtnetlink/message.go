// Package rtnetlink reads, changes and watches the links and addresses of a host, and reports changes of its default routes.
package rtnetlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface.
type Link struct {
	Name    string
	Index   int  // a new one after the link is deleted and made again
	AdminUp bool // administrative state (IFF_UP); enough for an address
	// Up is the operational state: packets can pass (RFC 2863, section 3.1.14). It requires a carrier, and
	// the lower link and 802.1X to permit it.
	Up       bool
	Loopback bool
	MAC      net.HardwareAddr // empty without one
	MTU      int              // bytes
	// Kind is the kernel's name for a type of virtual link, such as "vlan", "bond", "bridge" or "veth". It is empty for a NIC.
	Kind string
	// PortOf is the kind of the link that this one is a port of, such as "bridge" or "bond". That link receives its
	// packets. Empty if it is no port.
	PortOf string
	// Prefixes are the subnets of its addresses in order, without single addresses and link-local ones. Only package link sets
	// them.
	Prefixes []netip.Prefix
}

// Equal reports whether two links have the same fields.
func (l Link) Equal(o Link) bool {
	return l.Name == o.Name && l.Index == o.Index && l.AdminUp == o.AdminUp && l.Up == o.Up && l.Loopback == o.Loopback &&
		bytes.Equal(l.MAC, o.MAC) && l.MTU == o.MTU && l.Kind == o.Kind && l.PortOf == o.PortOf && slices.Equal(l.Prefixes, o.Prefixes)
}

// Address is an IP address on a link.
type Address struct {
	Link      int // index of the link
	IP        netip.Addr
	Subnet    netip.Prefix // on-link subnet, or the far end of a point-to-point link
	Scope     uint8
	Flags     uint32 // IFA_F_*
	Label     string // IPv4 only
	Valid     uint32 // remaining seconds, or Infinite
	Preferred uint32 // remaining seconds, or Infinite
	Proto     uint8  // IFA_PROTO: the program that added it
}

// Infinite is the lifetime of a permanent address.
const Infinite = ^uint32(0)

// Event reports that a link or an address appeared, changed or went. Without either it reports a change of a default
// route. The kernel reports no IPv4 routes that it removes with their link or address.
type Event struct {
	Gone    bool
	Link    *Link
	Address *Address
}

// lengthInRoute is the offset of the destination's length in an rtmsg.
const lengthInRoute = 1

// attrProto is IFA_PROTO, known since Linux 5.18; older kernels ignore it.
const attrProto = 11

func familyOf(ip netip.Addr) byte {
	if ip.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// encodeNeighbour returns an ndmsg with its attribute for the neighbour entry of an address.
func encodeNeighbour(a Address) ([]byte, error) {
	header := binary.NativeEndian.AppendUint32([]byte{familyOf(a.IP), 0, 0, 0}, uint32(a.Link))
	header = append(header, 0, 0, 0, 0) // state, flags and type
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.NDA_DST, a.IP.AsSlice())
	encoded, err := attrs.Encode()
	return append(header, encoded...), err
}

// EncodeAddress returns an ifaddrmsg with its attributes.
func EncodeAddress(a Address) ([]byte, error) {
	header := []byte{familyOf(a.IP), byte(a.Subnet.Bits()), 0, a.Scope}
	header = binary.NativeEndian.AppendUint32(header, uint32(a.Link))

	// struct ifa_cacheinfo: preferred and valid lifetimes, and two times that only the kernel sets.
	lifetimes := binary.NativeEndian.AppendUint32(nil, a.Preferred)
	lifetimes = binary.NativeEndian.AppendUint32(lifetimes, a.Valid)
	lifetimes = append(lifetimes, make([]byte, 8)...)

	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.IFA_LOCAL, a.IP.AsSlice())
	attrs.Bytes(unix.IFA_ADDRESS, a.Subnet.Addr().AsSlice())
	attrs.Uint32(unix.IFA_FLAGS, a.Flags)
	attrs.Bytes(unix.IFA_CACHEINFO, lifetimes)
	if a.Label != "" {
		attrs.String(unix.IFA_LABEL, a.Label)
	}
	if a.Proto != 0 {
		attrs.Uint8(attrProto, a.Proto)
	}
	encoded, err := attrs.Encode()
	return append(header, encoded...), err
}

// decodeAddress decodes an ifaddrmsg. It reports false for families other than IPv4 and IPv6.
func decodeAddress(b []byte) (a Address, ok bool, err error) {
	if len(b) < unix.SizeofIfAddrmsg {
		return Address{}, false, errors.New("address message is too short")
	}
	if b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return Address{}, false, nil
	}
	a = Address{
		Link:      int(binary.NativeEndian.Uint32(b[4:8])),
		Scope:     b[3],
		Flags:     uint32(b[2]),
		Valid:     Infinite,
		Preferred: Infinite,
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfAddrmsg:])
	if err != nil {
		return Address{}, false, fmt.Errorf("address message: %w", err)
	}
	var local, far netip.Addr
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_ADDRESS:
			far, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_FLAGS:
			a.Flags = attrs.Uint32()
		case unix.IFA_LABEL:
			a.Label = attrs.String()
		case attrProto:
			a.Proto = attrs.Uint8()
		case unix.IFA_CACHEINFO:
			if v := attrs.Bytes(); len(v) >= 8 {
				a.Preferred = binary.NativeEndian.Uint32(v)
				a.Valid = binary.NativeEndian.Uint32(v[4:])
			}
		}
	}
	if err := attrs.Err(); err != nil {
		return Address{}, false, fmt.Errorf("address message: %w", err)
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
		return Address{}, false, fmt.Errorf("address message: bad address %v, subnet %v/%d", local, far, b[1])
	}
	a.IP, a.Subnet = local, subnet
	return a, true, nil
}

// decodeLink decodes an ifinfomsg. It reports false for messages of other families: bridges report their ports in
// such messages.
func decodeLink(b []byte) (l Link, ok bool, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, false, errors.New("link message is too short")
	}
	if b[0] != unix.AF_UNSPEC {
		return Link{}, false, nil
	}
	const up = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	flags := binary.NativeEndian.Uint32(b[8:12])
	l = Link{
		Index:    int(int32(binary.NativeEndian.Uint32(b[4:8]))),
		AdminUp:  flags&unix.IFF_UP != 0,
		Up:       flags&up == up,
		Loopback: flags&unix.IFF_LOOPBACK != 0,
	}
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return Link{}, false, fmt.Errorf("link message: %w", err)
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFLA_IFNAME:
			l.Name = attrs.String()
		case unix.IFLA_ADDRESS:
			if mac := attrs.Bytes(); len(bytes.Trim(mac, "\x00")) > 0 {
				l.MAC = mac
			}
		case unix.IFLA_MTU:
			l.MTU = int(attrs.Uint32())
		case unix.IFLA_LINKINFO:
			attrs.Nested(func(info *netlink.AttributeDecoder) error {
				for info.Next() {
					switch info.Type() {
					case unix.IFLA_INFO_KIND:
						l.Kind = info.String()
					case unix.IFLA_INFO_SLAVE_KIND:
						l.PortOf = info.String()
					}
				}
				return info.Err()
			})
		}
	}
	if err := attrs.Err(); err != nil {
		return Link{}, false, fmt.Errorf("link message: %w", err)
	}
	if l.Name == "" {
		return Link{}, false, errors.New("link message has no name")
	}
	return l, true, nil
}

// DecodeEvent decodes a message of a subscription. It reports false for messages about anything else.
func DecodeEvent(m netlink.Message) (e Event, ok bool, err error) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, ok, err := decodeLink(m.Data)
		return Event{Gone: m.Header.Type == unix.RTM_DELLINK, Link: &l}, ok, err
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, ok, err := decodeAddress(m.Data)
		return Event{Gone: m.Header.Type == unix.RTM_DELADDR, Address: &a}, ok, err
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return Event{Gone: m.Header.Type == unix.RTM_DELROUTE}, len(m.Data) >= unix.SizeofRtMsg && m.Data[lengthInRoute] == 0, nil
	}
	return Event{}, false, nil
}
