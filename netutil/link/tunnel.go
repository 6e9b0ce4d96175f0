package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tunnel is a link of Herald's by which nodes hand each other packets that are not for their own addresses: VXLAN,
// which carries 16 bits of the packet's mark (its group policy id).
//
// Each node has a number, which is in the link's MAC: what was sent to somebody else who had its address is dropped.
type Tunnel struct{}

const (
	// TunnelName is what the link is called.
	TunnelName = "herald-tunnel"
	// TunnelPort is that of UDP by which it goes.
	TunnelPort = 7947
	// GreetingPort is that of UDP by which nodes greet each other on the link.
	GreetingPort = 7948

	tunnelID = 1 // of Herald's port there is no other

	// tunnelMTU is more than comes by any link: what does not fit goes in fragments, so that no client is
	// told of a smaller MTU, or waits where it cannot be told. Over IPv6 Linux makes no fragments of what a
	// tunnel sends: there clients are told.
	tunnelMTU, tunnelMTU6 = 9000, 1430

	loose = "2" // of rp_filter: answers do not go by the tunnel
)

// Ensure has the link be there, for a node of that number and address, and returns its index. One that is not as it
// should be, as a Herald of another configuration has left it, is made anew. Until [Tunnel.Reach] it takes in nothing.
func (t Tunnel) Ensure(number uint16, local netip.Addr) (index int, err error) {
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: TunnelName, HardwareAddr: tunnelMAC(number), MTU: tunnelMTU},
		VxlanId:   tunnelID, SrcAddr: local.AsSlice(), Port: TunnelPort, GBP: true,
	}
	if local.Is6() {
		want.MTU = tunnelMTU6
	}
	there, err := t.find()
	if err == nil && !sameTunnel(there, want) {
		if there != nil {
			err = netlink.LinkDel(there)
		}
		if err == nil {
			err = netlink.LinkAdd(want) // which fills in the index
		}
		there = want
	}
	if err != nil {
		return 0, fmt.Errorf("make link %s: %w", TunnelName, err)
	}
	return there.Attrs().Index, nil
}

// Reach has packets taken in by the link, for the node of number self, and other nodes be reached, by their numbers and
// addresses, as [TunnelAddr], in IPv6 too if v6.
func (t Tunnel) Reach(self uint16, others map[uint16]netip.Addr, v6 bool) error {
	l, err := netlink.LinkByName(TunnelName)
	if err == nil {
		err = t.setUp(l, self)
	}
	if err != nil {
		return fmt.Errorf("set link %s up: %w", TunnelName, err)
	}
	for number, at := range others {
		if err := t.reach(l.Attrs().Index, number, at, v6); err != nil {
			return fmt.Errorf("reach %s by link %s: %w", at, TunnelName, err)
		}
	}
	return nil
}

// setUp has IPv4 take in what comes by the link, which it does of a link with an address only.
func (t Tunnel) setUp(l netlink.Link, number uint16) error {
	if l.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	addr := netlink.NewIPNet(TunnelAddr(number, true).AsSlice())
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: addr, Scope: unix.RT_SCOPE_LINK}); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	// Setting it tells all who watch links.
	if value, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + TunnelName + "/rp_filter"); err == nil && strings.TrimSpace(string(value)) == loose {
		return nil
	}
	return ReversePath.Set(TunnelName, 2)
}

func (t Tunnel) reach(index int, number uint16, at netip.Addr, v6 bool) error {
	// Without a route the kernel would ask for the packet's destination on the link.
	to := &netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(TunnelAddr(number, true).AsSlice())}
	if err := netlink.RouteReplace(to); err != nil {
		return err
	}
	entries := []netlink.Neigh{{Family: unix.AF_BRIDGE, Flags: unix.NTF_SELF, IP: at.AsSlice()}, {IP: to.Dst.IP}}
	if v6 {
		entries = append(entries, netlink.Neigh{IP: TunnelAddr(number, false).AsSlice()})
	}
	for _, n := range entries {
		n.LinkIndex, n.State, n.HardwareAddr = index, unix.NUD_PERMANENT, tunnelMAC(number)
		if err := netlink.NeighSet(&n); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the link, if it is there.
func (t Tunnel) Remove() error {
	there, err := t.find()
	if err == nil && there != nil {
		err = netlink.LinkDel(there)
	}
	if err != nil {
		return fmt.Errorf("remove link %s: %w", TunnelName, err)
	}
	return nil
}

func (t Tunnel) find() (netlink.Link, error) {
	l, err := netlink.LinkByName(TunnelName)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	return l, err
}

func sameTunnel(there netlink.Link, want *netlink.Vxlan) bool {
	is, ok := there.(*netlink.Vxlan)
	return ok && bytes.Equal(is.HardwareAddr, want.HardwareAddr) && is.SrcAddr.Equal(want.SrcAddr) &&
		is.VxlanId == want.VxlanId && is.Port == want.Port && is.GBP && is.MTU == want.MTU
}

// TunnelAddr is a node's address on the link, which no other link sees: one of 240.0.0.0/16, which nobody uses, or a
// link-local one.
func TunnelAddr(number uint16, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{240, 0, byte(number >> 8), byte(number)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: byte(number >> 8), 15: byte(number)})
}

// tunnelMAC is a node's, of those that are locally administered.
func tunnelMAC(number uint16) net.HardwareAddr {
	return binary.BigEndian.AppendUint16([]byte{2, 0x68, 0, 0}, number)
}
