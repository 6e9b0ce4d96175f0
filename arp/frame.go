package arp

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"
)

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
