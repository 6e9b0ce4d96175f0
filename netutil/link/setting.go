package link

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Setting is a kernel setting of IPv4 on a link, by its number in linux/ip.h. Each is a file below
// /proc/sys/net/ipv4/conf.
type Setting uint16

// The settings that Herald changes.
const (
	// Forwarding permits forwarding packets that arrived on the link (forwarding).
	Forwarding Setting = 1
	// ReversePath drops packets that did not arrive by the link of the route to their sender (rp_filter).
	ReversePath Setting = 8
	// ARPAnnounce selects the source address of ARP requests (arp_announce). With [AnnounceOwn] it is an address in the
	// requested subnet.
	ARPAnnounce Setting = 18
	// RouteLocalnet permits routing of 127.0.0.0/8 on the link (route_localnet).
	RouteLocalnet Setting = 26
)

// AnnounceOwn is a value of [ARPAnnounce].
const AnnounceOwn = 2

// Set sets a setting of a link by rtnetlink, which needs only CAP_NET_ADMIN: containers and sandboxed services
// cannot write /proc/sys. The error is unix.ENODEV if there is no such link, and unix.EPERM without
// the capability.
func (s Setting) Set(link string, value uint32) error {
	if err := s.set(link, value); err != nil {
		return fmt.Errorf("set IPv4 setting %d of %s: %w", s, link, err)
	}
	return nil
}

func (s Setting) set(link string, value uint32) error {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return unix.ENODEV // the only likely cause
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
