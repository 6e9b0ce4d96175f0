package fence

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/wait"
)

// Addresses of the node with the fence, and of a neighbour on the same link.
var (
	nodeOwn  = pair{netip.MustParsePrefix("10.9.0.1/16"), netip.MustParsePrefix("fd00:9::1/64")}
	nextDoor = pair{netip.MustParsePrefix("10.9.0.2/16"), netip.MustParsePrefix("fd00:9::2/64")}
	vip      = pair{netip.MustParsePrefix("10.9.0.100/32"), netip.MustParsePrefix("fd00:9::100/128")}
)

// askers are the sources of requests, used in turn. Each becomes a neighbour of the node, and all namespaces of a
// machine share one neighbour table of 1,024 entries (net.ipv4.neigh.default.gc_thresh3). More askers would break other tests.
var askers = pair{netip.MustParsePrefix("10.9.1.0/28"), netip.MustParsePrefix("fd00:9::1:0/124")}

// pair is an address of each family.
type pair [2]netip.Prefix

func (p pair) addrs() []netip.Addr { return []netip.Addr{p[0].Addr(), p[1].Addr()} }

// wire is a link between a node and a neighbour. The neighbour reads and sends its frames.
type wire struct {
	node, neighbour *host
	conn            *packet.Conn
	asker           [2]netip.Addr // source of the last request
}

const linkName = "lan0"

// newWire makes a node that has the virtual addresses on its link.
func newWire(t testing.TB) *wire {
	t.Helper()
	s := &wire{node: newHost(t), neighbour: newHost(t), asker: [2]netip.Addr{askers[0].Addr(), askers[1].Addr()}}
	s.node.Connect(linkName, s.neighbour.Host, linkName)
	for i := range vip {
		s.node.Add(linkName, nodeOwn[i].String())
		s.node.Add(linkName, vip[i].String())
		s.neighbour.Add(linkName, nextDoor[i].String())
	}
	var err error
	s.neighbour.In(func() {
		var link *net.Interface
		if link, err = net.InterfaceByName(linkName); err == nil {
			s.conn, err = packet.Listen(link, packet.Raw, unix.ETH_P_ALL, nil)
		}
	})
	s.neighbour.Must(err)
	t.Cleanup(func() { _ = s.conn.Close() })
	for i := range vip { // a new link loses frames at first
		wait.Until(t, "the link works", func() bool {
			s.ask(s.asker[i], nodeOwn[i].Addr())
			f, ok := s.poll(20 * time.Millisecond)
			return ok && f.kind == answerFrame
		})
		wait.Until(t, "the node answers for the address", func() bool { return s.answers(vip[i].Addr()) })
	}
	return s
}

// answers reports whether the node answers a request for addr. A second request, for the node's own address, marks the
// end of the wait. A new link loses frames at first, so answers repeats both, each time from another source.
func (s *wire) answers(addr netip.Addr) bool {
	s.node.T.Helper()
	i := 1
	if addr.Is4() {
		i = 0
	}
	control, answered := nodeOwn[i].Addr(), false
	wait.Until(s.node.T, "the node answers for its own address", func() bool {
		if s.asker[i] = s.asker[i].Next(); !askers[i].Contains(s.asker[i]) {
			s.asker[i] = askers[i].Addr()
		}
		s.ask(s.asker[i], addr)
		s.ask(s.asker[i], control)
		for answered = false; ; {
			f, ok := s.poll(time.Second)
			switch {
			case !ok:
				return false
			case f.kind != answerFrame || f.target != s.asker[i]:
			case f.sender == addr:
				answered = true
			case f.sender == control:
				return true
			}
		}
	})
	return answered
}

// frame is ARP or neighbour discovery.
type frame struct {
	kind           frameKind
	sender, target netip.Addr // of an answer: the address that it resolves, and its recipient
}

type frameKind int

const (
	otherFrame  frameKind = iota
	answerFrame           // ARP reply or neighbour advertisement
	askingFrame           // ARP request or neighbour solicitation
)

// next returns the next such frame from the node.
func (s *wire) next() frame {
	s.node.T.Helper()
	f, ok := s.poll(patience)
	if !ok {
		s.node.T.Fatal("no frame received")
	}
	return f
}

// poll is next with a timeout.
func (s *wire) poll(wait time.Duration) (frame, bool) {
	s.node.T.Helper()
	s.node.Must(s.conn.SetReadDeadline(time.Now().Add(wait)))
	b := make([]byte, 2048)
	for {
		n, _, err := s.conn.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return frame{}, false
		}
		s.node.Must(err)
		if f := parseFrame(b[:n]); f.kind != otherFrame {
			return f, true
		}
	}
}

func parseFrame(b []byte) frame {
	switch {
	case len(b) >= 42 && binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_ARP:
		f := frame{askingFrame, netip.AddrFrom4([4]byte(b[28:])), netip.AddrFrom4([4]byte(b[38:]))}
		if b[21] == 2 {
			f.kind = answerFrame
		}
		return f
	case len(b) < 78 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IPV6 || b[20] != unix.IPPROTO_ICMPV6:
		return frame{}
	case b[54] == 136:
		return frame{answerFrame, netip.AddrFrom16([16]byte(b[62:])), netip.AddrFrom16([16]byte(b[38:]))}
	case b[54] == 135:
		return frame{askingFrame, netip.AddrFrom16([16]byte(b[22:])), netip.AddrFrom16([16]byte(b[62:]))}
	}
	return frame{}
}

// ask sends a request for addr from the neighbour's link.
func (s *wire) ask(asker, addr netip.Addr) {
	s.node.T.Helper()
	if addr.Is4() {
		s.send(arpFrame(s.neighbour.mac(linkName), 1, asker, addr))
		return
	}
	s.send(solicitation(s.neighbour.mac(linkName), asker, addr))
}

func (s *wire) send(frame []byte) {
	s.node.T.Helper()
	_, err := s.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	s.node.Must(err)
}

// arpFrame returns broadcast ARP (RFC 826). A reply names the sender as the target, as announcements do.
func arpFrame(mac net.HardwareAddr, op byte, sender, target netip.Addr) []byte {
	b := append([]byte{255, 255, 255, 255, 255, 255}, mac...)
	b = append(b, 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, op)
	b = append(append(b, mac...), sender.AsSlice()...)
	return append(append(b, mac...), target.AsSlice()...)
}

// solicitation returns a neighbour solicitation to the target's multicast group (RFC 4861, section 4.3).
func solicitation(mac net.HardwareAddr, source, target netip.Addr) []byte {
	t, group := target.As16(), netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], t[13:])
	icmp := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, t[:]...)
	icmp = append(append(icmp, 1, 1), mac...)
	src := source.As16()
	binary.BigEndian.PutUint16(icmp[2:], checksum(src[:], group[:], []byte{0, 0, 0, byte(len(icmp)), 0, 0, 0, unix.IPPROTO_ICMPV6}, icmp))

	b := append([]byte{0x33, 0x33, group[12], group[13], group[14], group[15]}, mac...)
	b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	b = append(append(b, src[:]...), group[:]...)
	return append(b, icmp...)
}

// checksum returns the checksum of RFC 1071 over parts of even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, part := range parts {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
