package link

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Setting is one of the kernel's settings of IPv4 on a link, by its number in
// linux/ip.h; below /proc/sys/net/ipv4/conf each is a file.
type Setting uint16

// The settings that Herald changes.
const (
	// Forwarding lets packets pass that came by the link (forwarding).
	Forwarding Setting = 1
	// RouteLocalnet lets 127.0.0.0/8 be routed on the link (route_localnet).
	RouteLocalnet Setting = 26
)

// Set gives a setting of link a value. It asks rtnetlink, which needs no more than
// CAP_NET_ADMIN: containers and sandboxed services can only read /proc/sys. The error is
// unix.ENODEV if there is no such link, and unix.EPERM without the capability.
func (s Setting) Set(link string, value uint32) error {
	if err := s.set(link, value); err != nil {
		return fmt.Errorf("set IPv4 setting %d of %s: %w", s, link, err)
	}
	return nil
}

func (s Setting) set(link string, value uint32) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return unix.ENODEV // of IPv4 it could be no other
	}
	one := netlink.NewAttributeEncoder()
	one.Uint32(uint16(s), value)
	data, err := nested(unix.IFLA_AF_SPEC, unix.AF_INET, unix.IFLA_INET_CONF)(one.Encode())
	if err != nil {
		return err
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(message[4:], uint32(i.Index)) // ifi_index
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_SETLINK, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append(message, data...),
	})
	return err
}

// nested wraps attributes into each of types, the outermost first.
func nested(types ...uint16) func([]byte, error) ([]byte, error) {
	return func(data []byte, err error) ([]byte, error) {
		for i := len(types) - 1; i >= 0 && err == nil; i-- {
			data, err = netlink.MarshalAttributes([]netlink.Attribute{{Type: types[i] | netlink.Nested, Data: data}})
		}
		return data, err
	}
}
