package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The kernel's resilient groups, of which netlink knows nothing: linux/nexthop.h.
const (
	groupResilient = 1  // NEXTHOP_GRP_TYPE_RES
	nhaResGroup    = 12 // NHA_RES_GROUP, and what is in it:
	resBuckets     = 1  // NHA_RES_GROUP_BUCKETS
	resIdleTimer   = 2  // NHA_RES_GROUP_IDLE_TIMER, in hundredths of a second

	rtaNextHopID = 30 // RTA_NH_ID
)

const (
	// buckets is how many parts the flows to a prefix are hashed into.
	buckets = 128
	// idle is how long no packet may have come for a part until it moves to another next hop.
	idle = 100 * time.Millisecond
)

// nextHops are the kernel's nexthop objects that are ours: one for each next hop,
// and a group for each prefix. The groups are resilient: when a next hop joins, a
// flow that is under way stays where it is, and when one leaves, only its own flows
// move. Of a plain multipath route, any change moves a good part of all flows, to
// servers that reset what they do not know.
type nextHops map[any]uint32 // IDs, by netip.Addr of the next hop or netip.Prefix of the group

// id is the kernel's number of a next hop or of a prefix's group.
func (n nextHops) id(of any) uint32 {
	if n[of] == 0 {
		n[of] = uint32(len(n) + 1)
	}
	return n[of]
}

// route sets the route to prefix by way of its group, which has just these next
// hops from then on. The error is EOPNOTSUPP or EINVAL if the kernel has no such groups.
func (n nextHops) route(prefix netip.Prefix, hops map[netip.Addr]int) error {
	var members []byte
	for _, hop := range slices.SortedFunc(maps.Keys(hops), netip.Addr.Compare) {
		req := newNextHop(family(hop), n.id(hop))
		req.AddData(nl.NewRtAttr(unix.NHA_OIF, nl.Uint32Attr(uint32(hops[hop]))))
		req.AddData(nl.NewRtAttr(unix.NHA_GATEWAY, hop.AsSlice()))
		if err := execute(req); err != nil {
			return fmt.Errorf("next hop %v: %w", hop, err)
		}
		members = binary.NativeEndian.AppendUint32(members, n.id(hop))
		members = append(members, 0, 0, 0, 0) // a weight of 1
	}
	req := newNextHop(unix.AF_UNSPEC, n.id(prefix))
	req.AddData(nl.NewRtAttr(unix.NHA_GROUP, members))
	req.AddData(nl.NewRtAttr(unix.NHA_GROUP_TYPE, nl.Uint16Attr(groupResilient)))
	resilience := nl.NewRtAttr(unix.NLA_F_NESTED|nhaResGroup, nil)
	resilience.AddRtAttr(resBuckets, nl.Uint16Attr(buckets))
	resilience.AddRtAttr(resIdleTimer, nl.Uint32Attr(uint32(idle/(10*time.Millisecond))))
	req.AddData(resilience)
	if err := execute(req); err != nil {
		return fmt.Errorf("group of next hops: %w", err)
	}
	req = nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	message := nl.NewRtMsg()
	message.Family, message.Protocol, message.Dst_len = family(prefix.Addr()), uint8(protocolBGP), uint8(prefix.Bits())
	req.AddData(message)
	req.AddData(nl.NewRtAttr(unix.RTA_DST, prefix.Addr().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(metricBGP)))
	req.AddData(nl.NewRtAttr(rtaNextHopID, nl.Uint32Attr(n.id(prefix))))
	return execute(req)
}

// clear deletes all next hops and groups that are ours, whoever left them, and the
// routes with them.
func (nextHops) clear() error {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEXTHOP, unix.NLM_F_DUMP)
	req.AddData(&nextHopMessage{})
	list, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEXTHOP)
	if errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list next hops: %w", err)
	}
	for _, m := range list {
		if len(m) < unix.SizeofNhmsg || m[2] != uint8(protocolBGP) {
			continue
		}
		attrs, err := nl.ParseRouteAttrAsMap(m[unix.SizeofNhmsg:])
		if err != nil {
			return fmt.Errorf("list next hops: %w", err)
		}
		req := nl.NewNetlinkRequest(unix.RTM_DELNEXTHOP, unix.NLM_F_ACK)
		req.AddData(&nextHopMessage{})
		req.AddData(nl.NewRtAttr(unix.NHA_ID, attrs[unix.NHA_ID].Value))
		// A group goes with the last of its next hops.
		if err := execute(req); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("delete next hop: %w", err)
		}
	}
	return nil
}

// newNextHop is a request that makes a next hop or a group of them, or changes it.
func newNextHop(family uint8, id uint32) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nextHopMessage{Family: family, Protocol: uint8(protocolBGP)})
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

// nextHopMessage is the head of requests about next hops.
type nextHopMessage unix.Nhmsg

func (*nextHopMessage) Len() int { return unix.SizeofNhmsg }

func (m *nextHopMessage) Serialize() []byte {
	b := []byte{m.Family, m.Scope, m.Protocol, m.Resvd}
	return binary.NativeEndian.AppendUint32(b, m.Flags)
}
