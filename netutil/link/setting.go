package link

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/rtnetlink"
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
	setting := netlink.NewAttributeEncoder()
	setting.Nested(unix.IFLA_AF_SPEC, func(families *netlink.AttributeEncoder) error {
		families.Nested(unix.AF_INET, func(family *netlink.AttributeEncoder) error {
			family.Nested(unix.IFLA_INET_CONF, func(conf *netlink.AttributeEncoder) error {
				conf.Uint32(uint16(s), value)
				return nil
			})
			return nil
		})
		return nil
	})
	data, err := setting.Encode()
	if err != nil {
		return err
	}
	message := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(message[4:], uint32(i.Index)) // ifi_index
	k := &rtnetlink.Conn{}
	defer k.Close()
	_, err = k.Execute(unix.RTM_SETLINK, netlink.Acknowledge, append(message, data...))
	return err
}
