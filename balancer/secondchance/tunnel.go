package secondchance

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
)

// vxlan is the link [link.TunnelName], the link between members for misrouted packets. It
// is a VXLAN, which carries the low 16 bits of a packet's mark as its group policy ID.
//
// The number of a member is part of the MAC of its link. A packet sent to another member that had the same address before is dropped.
type vxlan struct{}

const (
	tunnelID = 1 // VXLAN network identifier; no other network uses Herald's port

	// tunnelMTU exceeds the MTU of any link: longer packets are sent in fragments, so that no client is told of a smaller MTU, or
	// stalls where such messages are filtered. Linux does not fragment a tunnel's IPv6 packets: there clients are told.
	tunnelMTU, tunnelMTU6 = 9000, 1430

	loose = "2" // value of rp_filter: the tunnel is not the route to a packet's sender
)

// ensure creates the link for the member of this number and underlay address and returns its index. It replaces a link
// with other settings, such as an earlier configuration's. A new link receives nothing until [vxlan.reach].
func (t vxlan) ensure(number uint16, local netip.Addr) (index int, err error) {
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: link.TunnelName, HardwareAddr: tunnelMAC(number), MTU: tunnelMTU},
		VxlanId:   tunnelID, SrcAddr: local.AsSlice(), Port: link.TunnelPort, GBP: true,
	}
	if local.Is6() {
		want.MTU = tunnelMTU6
	}
	found, err := t.find()
	if err == nil && !sameTunnel(found, want) {
		if found != nil {
			err = netlink.LinkDel(found)
		}
		if err == nil {
			err = netlink.LinkAdd(want) // sets want's index
		}
		found = want
	}
	if err != nil {
		return 0, fmt.Errorf("make link %s: %w", link.TunnelName, err)
	}
	return found.Attrs().Index, nil
}

// reach sets the link up for the member of number self. It adds routes and neighbours for the others, by number and underlay
// address: in IPv4, and with v6 in IPv6 too.
func (t vxlan) reach(self uint16, others map[uint16]netip.Addr, v6 bool) error {
	l, err := netlink.LinkByName(link.TunnelName)
	if err == nil {
		err = t.setUp(l, self)
	}
	if err != nil {
		return fmt.Errorf("set link %s up: %w", link.TunnelName, err)
	}
	for number, addr := range others {
		if err := t.addNeighbour(l.Attrs().Index, number, addr, v6); err != nil {
			return fmt.Errorf("reach %s by link %s: %w", addr, link.TunnelName, err)
		}
	}
	return nil
}

// setUp sets the link up and gives it an address, without which Linux receives no IPv4 on it.
func (t vxlan) setUp(l netlink.Link, number uint16) error {
	if l.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	addr := netlink.NewIPNet(tunnelAddr(number, true).AsSlice())
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: addr, Scope: unix.RT_SCOPE_LINK}); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	// Each write notifies all programs that watch links.
	if value, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + link.TunnelName + "/rp_filter"); err == nil && strings.TrimSpace(string(value)) == loose {
		return nil
	}
	return link.ReversePath.Set(link.TunnelName, 2)
}

func (t vxlan) addNeighbour(index int, number uint16, addr netip.Addr, v6 bool) error {
	// Without a route the kernel would resolve the packet's destination on the link.
	route := &netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(tunnelAddr(number, true).AsSlice())}
	if err := netlink.RouteReplace(route); err != nil {
		return err
	}
	entries := []netlink.Neigh{{Family: unix.AF_BRIDGE, Flags: unix.NTF_SELF, IP: addr.AsSlice()}, {IP: route.Dst.IP}}
	if v6 {
		entries = append(entries, netlink.Neigh{IP: tunnelAddr(number, false).AsSlice()})
	}
	for _, n := range entries {
		n.LinkIndex, n.State, n.HardwareAddr = index, unix.NUD_PERMANENT, tunnelMAC(number)
		if err := netlink.NeighSet(&n); err != nil {
			return err
		}
	}
	return nil
}

// removeLink removes the link if it exists.
func (t vxlan) removeLink() error {
	found, err := t.find()
	if err == nil && found != nil {
		err = netlink.LinkDel(found)
	}
	if err != nil {
		return fmt.Errorf("remove link %s: %w", link.TunnelName, err)
	}
	return nil
}

// find returns the link, or nil if it does not exist.
func (t vxlan) find() (netlink.Link, error) {
	l, err := netlink.LinkByName(link.TunnelName)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	return l, err
}

func sameTunnel(found netlink.Link, want *netlink.Vxlan) bool {
	got, ok := found.(*netlink.Vxlan)
	return ok && bytes.Equal(got.HardwareAddr, want.HardwareAddr) && got.SrcAddr.Equal(want.SrcAddr) &&
		got.VxlanId == want.VxlanId && got.Port == want.Port && got.GBP && got.MTU == want.MTU
}

// tunnelAddr returns a member's address on the link, which is used on no other link: in IPv4 from the reserved
// 240.0.0.0/16, in IPv6 link-local.
func tunnelAddr(number uint16, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{240, 0, byte(number >> 8), byte(number)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: byte(number >> 8), 15: byte(number)})
}

// tunnelMAC returns a member's locally administered MAC.
func tunnelMAC(number uint16) net.HardwareAddr {
	return binary.BigEndian.AppendUint16([]byte{2, 0x68, 0, 0}, number)
}

// Kinds of messages.
const (
	question byte = 1
	answer   byte = 2
)

const (
	// probePort is the UDP port of probes on the link.
	probePort = 7948
	// tokenSize is the length in bytes of the random token that follows the kind. An answer repeats the question's token.
	tokenSize = 8
	// commonMTU is the MTU of most links. Probes fill it, as packets of connections do: where fragments are dropped, probes are lost too.
	commonMTU = 1500
	// headerSize is that of IPv4 and UDP, in bytes.
	headerSize = 28
)

// probe answers probes of other members and returns a function that probes a member by its number. received is called with
// the number of each member that answers, on a goroutine that stop waits for. The link has to be up.
func (t vxlan) probe(self uint16, received func(number uint16)) (ask func(number uint16) error, stop func(), err error) {
	var conn *net.UDPConn
	dev, err := net.InterfaceByName(link.TunnelName)
	if err == nil {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(probeAddr(self)))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen by link %s: %w", link.TunnelName, err)
	}
	token := make([]byte, tokenSize)
	_, _ = rand.Read(token) // never fails
	send := func(kind byte, token []byte, number uint16) error {
		message := make([]byte, min(dev.MTU, commonMTU)-headerSize)
		copy(message, append([]byte{kind}, token...))
		if _, err := conn.WriteToUDPAddrPort(message, probeAddr(number)); err != nil {
			return fmt.Errorf("probe by link %s: %w", link.TunnelName, err)
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, commonMTU)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			number, kind, got, ok := readProbe(from.Addr(), b[:n])
			switch {
			case !ok:
			case kind == question:
				_ = send(answer, got, number) // on failure the member asks again
			case bytes.Equal(got, token):
				received(number)
			}
		}
	}()
	ask = func(number uint16) error { return send(question, token, number) }
	return ask, func() { _ = conn.Close(); <-done }, nil
}

// probeAddr returns the address at which a member receives probes.
func probeAddr(number uint16) netip.AddrPort {
	return netip.AddrPortFrom(tunnelAddr(number, true), probePort)
}

// readProbe reads a message from an address of the link.
func readProbe(from netip.Addr, b []byte) (number uint16, kind byte, token []byte, ok bool) {
	if from = from.Unmap(); !from.Is4() || len(b) < 1+tokenSize || b[0] != question && b[0] != answer {
		return 0, 0, nil, false
	}
	number = binary.BigEndian.Uint16(from.AsSlice()[2:])
	return number, b[0], b[1 : 1+tokenSize], from == tunnelAddr(number, true)
}
