package link

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Setting is one of the kernel's settings of IPv4 on a link, by its number in
// linux/ip.h; below /proc/sys/net/ipv4/conf each is a file.
type Setting uint16

// The settings that Herald changes.
const (
	// Forwarding lets packets pass that came by the link (forwarding).
	Forwarding Setting = 1
	// ReversePath says whether packets are dropped whose sender is not reached by the link that they came by (rp_filter).
	ReversePath Setting = 8
	// ARPAnnounce says from which of the node's addresses the kernel asks for neighbours (arp_announce); with
	// [AnnounceOwn] from one in the subnet that it asks about.
	ARPAnnounce Setting = 18
	// RouteLocalnet lets 127.0.0.0/8 be routed on the link (route_localnet).
	RouteLocalnet Setting = 26
)

// AnnounceOwn is for [ARPAnnounce].
const AnnounceOwn = 2

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
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(i.Index)
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	families.AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil).AddRtAttr(int(s), nl.Uint32Attr(value))
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.AddData(header)
	request.AddData(families)
	_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
