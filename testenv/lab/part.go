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

// Part splits a LAN: nodes of different groups hear nothing of
// each other any more, not even broadcasts, while every node that is in no
// group still hears, and is heard by, all. Carriers stay up, and cuts of single
// links are a matter of their own. Each call replaces the one before; without
// groups the LAN is whole again.
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

// across is the node at the far end of a bridge's link.
func (l *Link) across(bridge string) (node string, ok bool) {
	for i, e := range l.ends {
		if e.machine == nil && e.Node == bridge {
			return l.ends[1-i].Node, true
		}
	}
	return "", false
}

// MAC is the hardware address of the node's interface.
func (l *Link) MAC(node string) net.HardwareAddr { return l.ends[l.side(node)].mac }

// Deafen loses the frames that these senders have on their way to the node, and
// only those: the senders still hear the node, and who else is on the LAN
// hears all. It replaces the senders of an earlier call; without any the node
// hears everybody again. Heal does not.
func (l *Link) Deafen(node string, senders ...net.HardwareAddr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.side(node)
	from := 1 - to
	if l.ends[from].plug == 0 {
		return fmt.Errorf("link %v: %s: %w", l, l.ends[from].Node, errOff)
	}
	for ; l.deaf[to] > 0; l.deaf[to]-- {
		err := l.wires.netlink.FilterDel(&netlink.U32{FilterAttrs: l.filterAt(from, uint16(l.deaf[to]))})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("link %v: undeafen %s: %w", l, node, err)
		}
	}
	for _, mac := range senders {
		// It has no action, and is before the redirect: nobody takes the frame then.
		err := l.wires.netlink.FilterAdd(&netlink.U32{FilterAttrs: l.filterAt(from, uint16(l.deaf[to]+1)), Sel: sentBy(mac)})
		if err != nil {
			return fmt.Errorf("link %v: deafen %s: %w", l, node, err)
		}
		l.deaf[to]++
	}
	return nil
}

// sentBy selects the frames with this source address, which is at a negative
// offset from where a filter's packet begins: six octets, and the two of the
// frame's type before the packet.
func sentBy(mac net.HardwareAddr) *netlink.TcU32Sel {
	return &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{
		{Off: -8, Val: binary.BigEndian.Uint32(mac[:4]), Mask: 0xffff_ffff},
		{Off: -4, Val: uint32(binary.BigEndian.Uint16(mac[4:])) << 16, Mask: 0xffff_0000},
	}}
}
