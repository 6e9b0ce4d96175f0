package holders

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/bpf"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	headerLen  = 14 // of Ethernet
	header4Len = 20 // of IPv4 without options
	header6Len = 40

	// echoID marks the observer's echo requests.
	echoID = 0x4845
	// hops is the TTL of the observer's packets; NDP requires 255.
	hops = 255
)

// station is one end of a frame.
type station struct {
	mac net.HardwareAddr
	ip  netip.Addr
}

// question returns a broadcast or multicast question for the VIP: an ARP request or a
// neighbour solicitation, in its Ethernet frame.
func question(from station, vip netip.Addr) ([]byte, error) {
	if vip.Is4() {
		p, err := arp.NewPacket(arp.OperationRequest, from.mac, from.ip, make(net.HardwareAddr, 6), vip)
		if err != nil {
			return nil, err
		}
		body, err := p.MarshalBinary()
		return frame(from.mac, ethernet.Broadcast, ethernet.EtherTypeARP, body, err)
	}
	group, err := ndp.SolicitedNodeMulticast(vip)
	if err != nil {
		return nil, err
	}
	ns := &ndp.NeighborSolicitation{TargetAddress: vip, Options: []ndp.Option{
		&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: from.mac},
	}}
	body, err := ndp.MarshalMessageChecksum(ns, from.ip, group)
	g := group.As16()
	dst := net.HardwareAddr{0x33, 0x33, g[12], g[13], g[14], g[15]} // RFC 2464, section 7
	return frame(from.mac, dst, ethernet.EtherTypeIPv6, packet6(from.ip, group, body), err)
}

// echo returns an echo request to the VIP at one MAC address, with a number that the reply
// repeats.
func echo(from station, dst station, number uint64) ([]byte, error) {
	m := &icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: echoID, Seq: int(number & 0xffff), Data: binary.BigEndian.AppendUint64(nil, number)}}
	if dst.ip.Is4() {
		body, err := m.Marshal(nil)
		return frame(from.mac, dst.mac, ethernet.EtherTypeIPv4, packet4(from.ip, dst.ip, body), err)
	}
	m.Type = ipv6.ICMPTypeEchoRequest
	body, err := m.Marshal(icmp.IPv6PseudoHeader(from.ip.AsSlice(), dst.ip.AsSlice()))
	return frame(from.mac, dst.mac, ethernet.EtherTypeIPv6, packet6(from.ip, dst.ip, body), err)
}

func frame(src, dst net.HardwareAddr, kind ethernet.EtherType, payload []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return (&ethernet.Frame{Source: src, Destination: dst, EtherType: kind, Payload: payload}).MarshalBinary()
}

// packet4 puts an ICMP message into an IPv4 packet.
func packet4(src, dst netip.Addr, body []byte) []byte {
	b := make([]byte, header4Len, header4Len+len(body))
	b[0] = ipv4.Version<<4 | header4Len/4
	binary.BigEndian.PutUint16(b[2:], uint16(header4Len+len(body)))
	b[8], b[9] = hops, unix.IPPROTO_ICMP
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, body...)
}

// packet6 puts an ICMPv6 message into an IPv6 packet.
func packet6(src, dst netip.Addr, body []byte) []byte {
	b := make([]byte, header6Len, header6Len+len(body))
	b[0] = ipv6.Version << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
	b[6], b[7] = unix.IPPROTO_ICMPV6, hops
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	return append(b, body...)
}

// checksum returns the checksum of an IPv4 header (RFC 1071).
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// glimpse is the information of a frame about an address that may be a VIP.
type glimpse struct {
	// from is the source MAC address of the frame.
	from net.HardwareAddr
	act  Act
	// vip is the address that the sender acts for or, in a question, asks for.
	vip netip.Addr
	// peer is the node that asked, or that is answered.
	peer netip.Addr
	// number is the number of the answered echo request.
	number uint64
}

// probing is the act of the observer's own echo requests.
const probing Act = "probes"

// filter lets ARP and ICMP pass, of both families.
func filter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipTrue: 6},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: headerLen + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipTrue: 2, SkipFalse: 3},
		bpf.LoadAbsolute{Off: headerLen + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}

var errNothing = errors.New("nothing of interest")

// read decodes a frame; most are of no interest.
func read(data []byte) (glimpse, error) {
	if len(data) < headerLen {
		return glimpse{}, errNothing
	}
	g := glimpse{from: net.HardwareAddr(data[6:12])}
	payload := data[headerLen:]
	switch ethernet.EtherType(binary.BigEndian.Uint16(data[12:])) {
	case ethernet.EtherTypeARP:
		return g.arp(payload)
	case ethernet.EtherTypeIPv4:
		return g.icmp4(payload)
	case ethernet.EtherTypeIPv6:
		return g.icmp6(payload)
	}
	return g, errNothing
}

func (g glimpse) arp(payload []byte) (glimpse, error) {
	var p arp.Packet
	if err := p.UnmarshalBinary(payload); err != nil {
		return g, err
	}
	if !p.SenderIP.Is4() || !p.TargetIP.Is4() {
		return g, errNothing
	}
	g.vip, g.peer = p.SenderIP, p.TargetIP
	switch {
	case g.vip == g.peer:
		g.act = Announces
	case p.Operation == arp.OperationReply:
		g.act = Answers
	case p.Operation == arp.OperationRequest:
		g.act = Asks
	default:
		return g, errNothing
	}
	return g, nil
}

func (g glimpse) icmp4(packet []byte) (glimpse, error) {
	h, err := ipv4.ParseHeader(packet)
	if err != nil || h.Protocol != unix.IPPROTO_ICMP || h.Len > h.TotalLen || h.TotalLen > len(packet) {
		return g, errNothing
	}
	m, err := icmp.ParseMessage(unix.IPPROTO_ICMP, packet[h.Len:h.TotalLen]) // Ethernet pads short frames
	if err != nil {
		return g, err
	}
	from, _ := netip.AddrFromSlice(h.Src)
	dst, _ := netip.AddrFromSlice(h.Dst)
	return g.echo(m, from.Unmap(), dst.Unmap())
}

func (g glimpse) icmp6(packet []byte) (glimpse, error) {
	h, err := ipv6.ParseHeader(packet)
	if err != nil || h.NextHeader != unix.IPPROTO_ICMPV6 || len(packet) < header6Len+4 {
		return g, errNothing
	}
	from, _ := netip.AddrFromSlice(h.Src)
	dst, _ := netip.AddrFromSlice(h.Dst)
	body := packet[header6Len:]
	switch ipv6.ICMPType(body[0]) {
	case ipv6.ICMPTypeEchoReply, ipv6.ICMPTypeEchoRequest:
		m, err := icmp.ParseMessage(unix.IPPROTO_ICMPV6, body)
		if err != nil {
			return g, err
		}
		return g.echo(m, from, dst)
	case ipv6.ICMPTypeNeighborAdvertisement, ipv6.ICMPTypeNeighborSolicitation:
		m, err := ndp.ParseMessage(body)
		if err != nil {
			return g, err
		}
		return g.ndp(m, from, dst)
	}
	return g, errNothing
}

func (g glimpse) ndp(m ndp.Message, src, dst netip.Addr) (glimpse, error) {
	switch m := m.(type) {
	case *ndp.NeighborAdvertisement:
		g.vip, g.peer, g.act = m.TargetAddress, dst, Answers
		if dst.IsMulticast() {
			g.act = Announces
		}
	case *ndp.NeighborSolicitation:
		// It tells two things: the sender has the source address, and asks for the target.
		g.vip, g.peer, g.act = src, m.TargetAddress, Asks
	default:
		return g, errNothing
	}
	return g, nil
}

// echo reads an echo request of the observer, or the reply to one.
func (g glimpse) echo(m *icmp.Message, src, dst netip.Addr) (glimpse, error) {
	e, ok := m.Body.(*icmp.Echo)
	if !ok || e.ID != echoID || len(e.Data) != 8 {
		return g, errNothing
	}
	g.vip, g.peer, g.act, g.number = dst, src, probing, binary.BigEndian.Uint64(e.Data)
	if m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply {
		g.vip, g.peer, g.act = src, dst, Accepts
	}
	return g, nil
}
