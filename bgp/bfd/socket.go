package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Source ports are of this range (RFC 5881 section 4).
const (
	firstSourcePort = 49152
	lastSourcePort  = 65535
)

const (
	// trafficClass is CS6, network control.
	trafficClass = 0xc0
	// priority is the highest priority without privileges, for queueing disciplines.
	priority = 6
	// receiveBuffer bounds the queue of a socket. The kernel doubles it and accounts at least 512 octets for each
	// packet, so maxQueued exceeds the queue.
	receiveBuffer = 96 << 10
	maxQueued     = 512
)

// endpoint names a receiving socket: one for each family and port.
type endpoint struct {
	v6   bool
	port int
}

func (c Config) endpoint() endpoint { return endpoint{c.Peer.Is6(), c.port()} }

// listener receives the packets of all sessions of an endpoint.
type listener struct {
	fd int

	// The buffers of recvmsg, which refer to each other.
	message unix.Msghdr
	vector  unix.Iovec
	name    unix.RawSockaddrInet6 // or an Inet4, which is smaller
	control [128]byte
	payload [packetLen + 40]byte // with room to tell that a packet is longer
}

// datagram is a received datagram. Its payload is a buffer of the listener.
type datagram struct {
	from    netip.Addr
	zone    uint32 // index of the interface, for a link-local sender
	dst     netip.Addr
	ttl     int // -1 if the kernel did not say
	payload []byte
}

// listen opens the socket of an endpoint. It does not set SO_REUSEADDR: of two sockets with this option on one UDP port,
// the later one silently takes the packets of the earlier. So another BFD daemon on this host causes an
// error, and keeps its packets.
func listen(e endpoint) (*listener, error) {
	family := unix.AF_INET
	var wildcard unix.Sockaddr = &unix.SockaddrInet4{Port: e.port}
	options := []option{{unix.IPPROTO_IP, unix.IP_RECVTTL, 1}, {unix.IPPROTO_IP, unix.IP_PKTINFO, 1}}
	if e.v6 {
		family, wildcard = unix.AF_INET6, &unix.SockaddrInet6{Port: e.port}
		options = []option{{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1}}
	}
	options = append(options, option{unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer})
	fd, err := openSocket(family, options, wildcard)
	if err != nil {
		return nil, err
	}
	l := &listener{fd: fd}
	l.vector.Base = &l.payload[0]
	l.vector.SetLen(len(l.payload))
	l.message.Name = (*byte)(unsafe.Pointer(&l.name))
	l.message.Iov = &l.vector
	l.message.SetIovlen(1)
	l.message.Control = &l.control[0]
	return l, nil
}

func (l *listener) close() { _ = unix.Close(l.fd) }

// receive reads a datagram from the socket's queue and reports whether there was one. The standard library has no call
// for this without waiting or allocating.
func (l *listener) receive(d *datagram) bool {
	for {
		l.message.Namelen = uint32(unsafe.Sizeof(l.name))
		l.message.SetControllen(len(l.control))
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(l.fd), uintptr(unsafe.Pointer(&l.message)), unix.MSG_DONTWAIT)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return false // nothing there; no error of a receiving socket lasts
		}
		d.payload = l.payload[:n]
		d.from, d.zone = l.sender()
		d.ttl, d.dst = destination(l.control[:l.message.Controllen])
		return true
	}
}

func (l *listener) sender() (netip.Addr, uint32) {
	if l.name.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&l.name)).Addr), 0
	}
	return netip.AddrFrom16(l.name.Addr), l.name.Scope_id
}

// destination reads the ancillary data: the TTL or hop limit, and the address that the datagram was sent to.
func destination(control []byte) (ttl int, dst netip.Addr) {
	ttl = -1
	for len(control) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		control = rest
		switch kind := [2]int32{header.Level, header.Type}; {
		case (kind == [2]int32{unix.IPPROTO_IP, unix.IP_TTL} || kind == [2]int32{unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT}) && len(data) >= 4:
			ttl = int(binary.NativeEndian.Uint32(data))
		case kind == [2]int32{unix.IPPROTO_IP, unix.IP_PKTINFO} && len(data) >= unix.SizeofInet4Pktinfo:
			dst = netip.AddrFrom4([4]byte(data[8:12]))
		case kind == [2]int32{unix.IPPROTO_IPV6, unix.IPV6_PKTINFO} && len(data) >= unix.SizeofInet6Pktinfo:
			dst = netip.AddrFrom16([16]byte(data[:16]))
		}
	}
	return ttl, dst
}

// open returns the socket that sends the session's packets: connected, so that the kernel reports ICMP errors. It
// binds to the session's previous source port if that is free, else to another of the range; taken tells
// which ports other sessions use.
func (s *session) open(taken func(port int) bool) error {
	c := s.config
	zone := c.Peer.Zone()
	peer, err := sockaddr(c.Peer, zone, c.port())
	if err != nil {
		return err
	}
	family := unix.AF_INET
	source := netip.IPv4Unspecified()
	options := []option{{unix.IPPROTO_IP, unix.IP_TTL, 255}, {unix.IPPROTO_IP, unix.IP_TOS, trafficClass}}
	if c.Peer.Is6() {
		family, source = unix.AF_INET6, netip.IPv6Unspecified()
		options = []option{{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255}, {unix.IPPROTO_IPV6, unix.IPV6_TCLASS, trafficClass}}
	}
	options = append(options, option{unix.SOL_SOCKET, unix.SO_PRIORITY, priority}) // after the TOS, which sets it too
	if c.Local.IsValid() {
		source = c.Local
	}
	port := s.sourcePort
	err = errors.New("no source port is free")
	for range 32 {
		if port == 0 || taken(port) {
			port = firstSourcePort + rand.IntN(lastSourcePort-firstSourcePort+1)
			continue
		}
		at, wrong := sockaddr(source, zone, port)
		if wrong != nil {
			return wrong
		}
		var fd int
		if fd, err = openSocket(family, options, at); errors.Is(err, unix.EADDRINUSE) {
			port = 0
			continue
		}
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, peer); err != nil {
			_ = unix.Close(fd)
			return err
		}
		s.fd, s.sourcePort, s.local = fd, port, localAddress(fd)
		if peer, v6 := peer.(*unix.SockaddrInet6); v6 && peer.ZoneId != 0 {
			s.local, s.zone = s.local.WithZone(zone), peer.ZoneId
		}
		return nil
	}
	return err
}

// option is a socket option.
type option struct{ level, name, value int }

// openSocket returns a bound UDP socket with these options.
func openSocket(family int, options []option, at unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			_ = unix.Close(fd)
			return -1, os.NewSyscallError(fmt.Sprintf("setsockopt %d of level %d", o.name, o.level), err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sockaddr returns the kernel's form of an address, with the zone of a link-local one.
func sockaddr(a netip.Addr, zone string, port int) (unix.Sockaddr, error) {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}, nil
	}
	sa := &unix.SockaddrInet6{Addr: a.As16(), Port: port}
	if a.IsLinkLocalUnicast() {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", zone, err)
		}
		sa.ZoneId = uint32(link.Index)
	}
	return sa, nil
}

// localAddress returns the source address of a connected socket.
func localAddress(fd int) netip.Addr {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}
