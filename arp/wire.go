package arp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"github.com/mdlayher/packet"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// network is the host's links and packet sockets.
type network interface {
	// watchLinks is link.Watch.
	watchLinks(ctx context.Context, changed func(map[string]link.Link)) error
	// permitted returns the error of opening any wire, such as a missing right.
	permitted() error
	// open opens a wire that receives statements about the watched addresses.
	open(l link.Link, f family, watched []netip.Addr) (wire, error)
}

// wire is a socket for the frames of one family on one link. Only the goroutine that receives closes it.
type wire interface {
	// send sends a frame without waiting.
	send(frame []byte) error
	// receive waits for the next frame. After an error the wire cannot be used.
	receive(b []byte) (int, error)
	// watch changes the watched addresses.
	watch(watched []netip.Addr) error
	// interrupt ends receive.
	interrupt()
	close()
}

// host is the running host.
type host struct {
	watcher *rtnetlink.Watcher
	// inside calls a function on a thread in the host's network namespace.
	inside func(func() error) error
}

func (h host) watchLinks(ctx context.Context, changed func(map[string]link.Link)) error {
	return h.inside(func() error { return link.Watch(ctx, h.watcher, changed) })
}

// socket is a packet socket bound to one EtherType, so that it never receives the link's other traffic. It receives
// frames as the network stack does: without VLAN tags, and on the bridge or bond rather than its ports.
type socket struct {
	family family
	conn   *packet.Conn
	raw    syscall.RawConn
}

func (h host) permitted() error {
	return h.inside(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return explainSocket(err)
		}
		return unix.Close(socket)
	})
}

// explainSocket adds the cure to an error.
func explainSocket(err error) error {
	err = fmt.Errorf("open packet socket: %w", err)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: Herald needs CAP_NET_RAW", err)
	}
	return err
}

func (h host) open(l link.Link, f family, watched []netip.Addr) (wire, error) {
	program, err := filter(f, watched)
	if err != nil {
		return nil, err
	}
	protocol := ethernet.EtherTypeARP
	if f == inet6 {
		protocol = ethernet.EtherTypeIPv6
	}
	s := &socket{family: f}
	err = h.inside(func() error {
		s.conn, err = packet.Listen(&net.Interface{Index: l.Index, HardwareAddr: l.MAC}, packet.Raw, int(protocol), &packet.Config{Filter: program})
		return err
	})
	if err != nil {
		return nil, explainSocket(err)
	}
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		s.close()
		return nil, explainSocket(err)
	}
	return s, nil
}

// send avoids packet.Conn.WriteTo, which waits while the socket's buffer is full.
func (s *socket) send(frame []byte) error {
	var sendErr error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.Write(int(fd), frame)
		return true
	})
	return cmp.Or(err, sendErr)
}

func (s *socket) receive(b []byte) (int, error) {
	n, _, err := s.conn.ReadFrom(b)
	return n, err
}

func (s *socket) watch(watched []netip.Addr) error {
	program, err := filter(s.family, watched)
	if err != nil {
		return err
	}
	if err := s.conn.SetBPF(program); err != nil {
		return fmt.Errorf("change packet filter: %w", err)
	}
	return nil
}

func (s *socket) interrupt() { _ = s.conn.SetReadDeadline(time.Unix(0, 0)) }

// close may take long: the kernel waits until no CPU uses the socket.
func (s *socket) close() { _ = s.conn.Close() }

// family is the protocol family of a socket.
type family uint8

const (
	inet4 family = iota // ARP
	inet6               // neighbour discovery
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return inet4
	}
	return inet6
}

// mac is a comparable Ethernet address.
type mac [6]byte

func (m mac) hardware() net.HardwareAddr { return m[:] }

// macOf returns an Ethernet address. It reports false for other hardware addresses.
func macOf(a net.HardwareAddr) (m mac, ok bool) {
	if len(a) != len(m) {
		return mac{}, false
	}
	return mac(a), true
}

// announcement returns the frames that announce addr at src, padded to Ethernet's minimum of 60 bytes.
//
// IPv4 is announced twice. The request is the ARP Announcement of RFC 5227, section 2.3: each host with an entry
// updates it (RFC 826). Some hosts accept only replies. In the reply the target is the sender, as in RFC 5944, section
// 4.6. Otherwise Linux does not take it for gratuitous ARP, and ignores it within a second of another change.
//
// IPv6 is announced by an unsolicited neighbour advertisement with Override, which replaces neighbours'
// entries (RFC 4861, section 7.2.6). It goes to all nodes, so that a router without an
// entry may create one, and the first packet to the address need not wait (RFC 9131).
func announcement(src mac, addr netip.Addr) [][]byte {
	if addr.Is4() {
		return [][]byte{
			arpFrame(src, arp.OperationRequest, addr, mac{}, addr),
			arpFrame(src, arp.OperationReply, addr, src, addr),
		}
	}
	allNodes := netip.IPv6LinkLocalAllNodes()
	return [][]byte{ndpFrame(src, addr, allNodes, &ndp.NeighborAdvertisement{
		Override:      true,
		TargetAddress: addr,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: src.hardware()}},
	})}
}

// probe returns the frame that probes for a host that uses addr, without claiming it for src. It is an ARP Probe
// (RFC 5227, section 2.1.1), or a neighbour solicitation from the unspecified address to the
// solicited-node group (RFC 4862, section 5.4.2).
func probe(src mac, addr netip.Addr) []byte {
	if addr.Is4() {
		return arpFrame(src, arp.OperationRequest, netip.IPv4Unspecified(), mac{}, addr)
	}
	group, _ := ndp.SolicitedNodeMulticast(addr) // fails for IPv4 only
	return ndpFrame(src, netip.IPv6Unspecified(), group, &ndp.NeighborSolicitation{TargetAddress: addr})
}

func arpFrame(src mac, op arp.Operation, sender netip.Addr, targetMAC mac, target netip.Addr) []byte {
	// Cannot fail: all lengths are fixed.
	payload, _ := (&arp.Packet{
		HardwareType:       hardwareEthernet,
		ProtocolType:       uint16(ethernet.EtherTypeIPv4),
		HardwareAddrLength: uint8(len(src)),
		IPLength:           net.IPv4len,
		Operation:          op,
		SenderHardwareAddr: src.hardware(),
		SenderIP:           sender,
		TargetHardwareAddr: targetMAC.hardware(),
		TargetIP:           target,
	}).MarshalBinary()
	return frame(src, ethernet.Broadcast, ethernet.EtherTypeARP, payload)
}

func frame(src mac, dst net.HardwareAddr, kind ethernet.EtherType, payload []byte) []byte {
	b, _ := (&ethernet.Frame{Destination: dst, Source: src.hardware(), EtherType: kind, Payload: payload}).MarshalBinary() // cannot fail: no VLANs
	return b
}

// ndpHopLimit proves that a packet was sent on this link (RFC 4861, section 7.1).
const ndpHopLimit = 255

// ndpFrame returns a frame to an IPv6 multicast group (RFC 2464, section 7).
func ndpFrame(src mac, from, group netip.Addr, m ndp.Message) []byte {
	message, _ := ndp.MarshalMessageChecksum(m, from, group) // cannot fail: the addresses are IPv6
	packet := make([]byte, ipv6.HeaderLen, ipv6.HeaderLen+len(message))
	packet[0] = ipv6.Version << 4
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message)))
	packet[6], packet[7] = protocolICMPv6, ndpHopLimit
	copy(packet[8:], from.AsSlice())
	copy(packet[24:], group.AsSlice())
	g := group.As16()
	return frame(src, net.HardwareAddr{0x33, 0x33, g[12], g[13], g[14], g[15]}, ethernet.EtherTypeIPv6, append(packet, message...))
}
