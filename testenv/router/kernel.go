package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel's resilient groups, which the netlink library lacks: linux/nexthop.h.
const (
	groupResilient = 1  // NEXTHOP_GRP_TYPE_RES
	nhaResGroup    = 12 // NHA_RES_GROUP, and its attributes:
	resBuckets     = 1  // NHA_RES_GROUP_BUCKETS
	resIdleTimer   = 2  // NHA_RES_GROUP_IDLE_TIMER, in hundredths of a second

	rtaNextHopID = 30 // RTA_NH_ID
)

const (
	// buckets is the number of parts that the connections to a prefix are hashed into.
	buckets = 128
	// idle is how long a part must see no packet before it moves to another next hop, in
	// hundredths of a second.
	idle = 10

	metric = 20 // of a route, as in FRR
)

// nextHops are this router's nexthop objects in the kernel: one for each next hop, and
// a group for each prefix. The groups are resilient: when a next hop joins, a
// connection stays where it is, and when one leaves, only its own connections move.
// With a plain multipath route, any change moves many connections, to servers that
// reset them.
type nextHops map[any]uint32 // IDs, by netip.Addr of the next hop or netip.Prefix of the group

// id returns the kernel's ID of a next hop or of a prefix's group.
func (n nextHops) id(object any) uint32 {
	if n[object] == 0 {
		n[object] = uint32(len(n) + 1)
	}
	return n[object]
}

// set makes the route to prefix lead to exactly these next hops; without any it deletes the route.
func (n nextHops) set(prefix netip.Prefix, hops []netip.Addr) error {
	if len(hops) == 0 {
		return netlink.RouteDel(&netlink.Route{
			Dst:      &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
			Protocol: unix.RTPROT_BGP, Priority: metric,
		})
	}
	var members []byte
	for _, hop := range hops {
		ways, err := netlink.RouteGet(hop.AsSlice())
		if err != nil {
			return fmt.Errorf("next hop %v: %w", hop, err)
		}
		req := newNextHop(family(hop), n.id(hop))
		req.AddData(nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(ways[0].LinkIndex))))
		req.AddData(nl.NewRtAttr(unix.NHA_GATEWAY, hop.AsSlice()))
		if err := execute(req); err != nil {
			return fmt.Errorf("next hop %v: %w", hop, err)
		}
		members = binary.NativeEndian.AppendUint32(members, n.id(hop))
		members = append(members, 0, 0, 0, 0) // a weight of 1
	}
	err := n.setGroup(prefix, members, true)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) { // before Linux 5.13
		err = n.setGroup(prefix, members, false)
	}
	if err != nil {
		return fmt.Errorf("group of next hops: %w", err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	message := nl.NewRtMsg()
	message.Family, message.Protocol, message.Dst_len = family(prefix.Addr()), unix.RTPROT_BGP, uint8(prefix.Bits())
	req.AddData(message)
	req.AddData(nl.NewRtAttr(unix.RTA_DST, prefix.Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(metric)))
	req.AddData(nl.NewRtAttr(rtaNextHopID, nl.Uint32Attr(n.id(prefix))))
	return execute(req)
}

func (n nextHops) setGroup(prefix netip.Prefix, members []byte, resilient bool) error {
	req := newNextHop(unix.AF_UNSPEC, n.id(prefix))
	req.AddData(nl.NewRtAttr(unix.NHA_GROUP, members))
	if resilient {
		req.AddData(nl.NewRtAttr(unix.NHA_GROUP_TYPE, nl.Uint16Attr(groupResilient)))
		resilience := nl.NewRtAttr(unix.NLA_F_NESTED|nhaResGroup, nil)
		resilience.AddRtAttr(resBuckets, nl.Uint16Attr(buckets))
		resilience.AddRtAttr(resIdleTimer, nl.Uint32Attr(idle))
		req.AddData(resilience)
	}
	return execute(req)
}

// newNextHop returns a request that makes or changes a next hop or a group of them.
func newNextHop(family uint8, id uint32) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nextHopMessage{Family: family, Protocol: unix.RTPROT_BGP})
	req.AddData(nl.NewRtAttr(unix.NHA_ID, nl.Uint32Attr(id)))
	return req
}

func execute(req *nl.NetlinkRequest) error {
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// nextHopMessage is the header of requests about next hops.
type nextHopMessage unix.Nhmsg

func (*nextHopMessage) Len() int { return unix.SizeofNhmsg }

func (m *nextHopMessage) Serialize() []byte {
	b := []byte{m.Family, m.Scope, m.Protocol, m.Resvd}
	return binary.NativeEndian.AppendUint32(b, m.Flags)
}
