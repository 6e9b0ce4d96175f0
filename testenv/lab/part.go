package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Part splits a LAN. Nodes of different groups receive nothing from each other any
// more, not even broadcasts. Nodes outside all groups still exchange frames with all.
// Carriers stay up, and cuts of single links are independent. Each call replaces the
// previous one; without groups the LAN is whole again.
func (l *Lab) Part(bridge string, groups ...[]string) error {
	members := slices.Concat(groups...)
	for _, link := range l.links {
		node, ok := link.across(bridge)
		if !ok {
			continue
		}
		var others []net.HardwareAddr
		for _, g := range groups {
			if slices.Contains(members, node) && !slices.Contains(g, node) {
				for _, other := range g {
					others = append(others, l.Link(bridge, other).MAC(other))
				}
			}
		}
		if err := link.Deafen(node, others...); err != nil {
			return fmt.Errorf("part %s: %w", bridge, err)
		}
	}
	return nil
}

// across returns the node at the far end of a bridge's link.
func (l *Link) across(bridge string) (node string, ok bool) {
	for i, e := range l.ends {
		if e.machine == nil && e.Node == bridge {
			return l.ends[1-i].Node, true
		}
	}
	return "", false
}

// MAC returns the hardware address of the node's interface.
func (l *Link) MAC(node string) net.HardwareAddr { return l.ends[l.side(node)].mac }

// Deafen loses only the frames from these senders to the node: the senders still
// receive from the node, and other nodes receive everything. It replaces the senders
// of an earlier call; without senders the node receives everything again. Heal does
// not undo it.
func (l *Link) Deafen(node string, senders ...net.HardwareAddr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	side := l.side(node)
	from := 1 - side
	if l.ends[from].plug == 0 {
		return fmt.Errorf("link %v: %s: %w", l, l.ends[from].Node, errOff)
	}
	for ; l.deaf[side] > 0; l.deaf[side]-- {
		err := l.wires.netlink.FilterDel(&netlink.U32{FilterAttrs: l.filterAt(from, uint16(l.deaf[side]))})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("link %v: undeafen %s: %w", l, node, err)
		}
	}
	for _, mac := range senders {
		// It has no action and precedes the redirect, so the frame is dropped.
		err := l.wires.netlink.FilterAdd(&netlink.U32{FilterAttrs: l.filterAt(from, uint16(l.deaf[side]+1)), Sel: sentBy(mac)})
		if err != nil {
			return fmt.Errorf("link %v: deafen %s: %w", l, node, err)
		}
		l.deaf[side]++
	}
	return nil
}

// sentBy selects the frames with this source address. It lies at a negative offset,
// because a filter's packet begins after the Ethernet header: six octets of address
// and two of type.
func sentBy(mac net.HardwareAddr) *netlink.TcU32Sel {
	return &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{
		{Off: -8, Val: binary.BigEndian.Uint32(mac[:4]), Mask: 0xffff_ffff},
		{Off: -4, Val: uint32(binary.BigEndian.Uint16(mac[4:])) << 16, Mask: 0xffff_0000},
	}}
}
