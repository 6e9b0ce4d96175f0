// Package rtnetlink reads, changes and watches the links and addresses of a host, and says when its default routes change.
package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface.
type Link struct {
	Index    int
	Name     string
	Up       bool // administratively; carrier does not matter to an address
	Passes   bool // packets can pass, see link.Link
	Loopback bool
	MAC      string // bytes; empty if there is none
	MTU      int
	Kind     string // of a virtual link
	PortOf   string // the kind of the link that it belongs to, such as "bridge"; empty if to none
}

// Address is an IP address on a link.
type Address struct {
	Link      int // index
	IP        netip.Addr
	Subnet    netip.Prefix // the on-link subnet, or the far end of a point-to-point link
	Scope     uint8
	Flags     uint32 // IFA_F_*
	Label     string // IPv4 only
	Valid     uint32 // seconds left, or Infinite
	Preferred uint32 // seconds left, or Infinite
	Proto     uint8  // IFA_PROTO: who put it there
}

// Infinite is the lifetime of a permanent address.
const Infinite = ^uint32(0)

// Event is a link or an address that appeared, changed or went. One with neither says that a
// default route did; IPv4 routes that go with a link or an address go without.
type Event struct {
	Gone    bool
	Link    *Link
	Address *Address
}

// lengthInRoute is where a rtmsg has the length of its destination.
const lengthInRoute = 1

// attrProto is IFA_PROTO, known since Linux 5.18; older kernels ignore it.
const attrProto = 11

func familyOf(ip netip.Addr) byte {
	if ip.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// encodeNeighbour makes an ndmsg about the neighbour with an address, and its attribute.
func encodeNeighbour(a Address) ([]byte, error) {
	header := binary.NativeEndian.AppendUint32([]byte{familyOf(a.IP), 0, 0, 0}, uint32(a.Link))
	header = append(header, 0, 0, 0, 0) // state, flags and type
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.NDA_DST, a.IP.AsSlice())
	encoded, err := attrs.Encode()
	return append(header, encoded...), err
}

// EncodeAddress makes an ifaddrmsg with its attributes.
func EncodeAddress(a Address) ([]byte, error) {
	header := []byte{familyOf(a.IP), byte(a.Subnet.Bits()), 0, a.Scope}
	header = binary.NativeEndian.AppendUint32(header, uint32(a.Link))

	// struct ifa_cacheinfo: preferred, valid, and two times that only the kernel sets.
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

// decodeAddress reads an ifaddrmsg; ok is false for families other than IPv4 and IPv6.
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

// decodeLink reads an ifinfomsg; ok is false if it is not about the link itself:
// bridges report ports that come and go in the same messages, under their own family.
func decodeLink(b []byte) (l Link, ok bool, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, false, errors.New("link message is too short")
	}
	if b[0] != unix.AF_UNSPEC {
		return Link{}, false, nil
	}
	const passes = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	flags := binary.NativeEndian.Uint32(b[8:12])
	l = Link{
		Index:    int(int32(binary.NativeEndian.Uint32(b[4:8]))),
		Up:       flags&unix.IFF_UP != 0,
		Passes:   flags&passes == passes,
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
			if mac := string(attrs.Bytes()); strings.Trim(mac, "\x00") != "" {
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

// DecodeEvent reads a message of a subscription; ok is false for what is about something else.
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
