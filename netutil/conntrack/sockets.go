package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// socket identifies a socket of this host by a struct inet_diag_sockid with its unique cookie (linux/inet_diag.h).
type socket struct {
	family byte
	id     [48]byte
}

// ends holds the addresses and ports of a connection, as seen from this host.
type ends struct{ local, remote netip.AddrPort }

// States of TCP (net/tcp_states.h).
const (
	// connected are the states with a known remote end. Without the restriction the kernel would choose the
	// listener at the local port if no socket matches.
	connected = 1<<1 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11 // ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING
	listening = 1 << 10                                  // LISTEN
)

// endSockets closes this host's client sockets of established connections.
func endSockets(connections []Connection) error {
	wanted := make(map[ends]bool)
	ports := make(map[uint16]bool)
	for _, c := range connections {
		if c.Phase != Established {
			continue
		}
		wanted[ends{c.Client, c.To}] = true
		ports[c.To.Port()] = true
	}
	var found []socket
	for port := range ports {
		err := eachSocket(connected, port, func(s socket, at ends) {
			if wanted[at] {
				found = append(found, s)
			}
		})
		if err != nil {
			return err
		}
	}
	return requestAll(unix.NETLINK_SOCK_DIAG, unix.SOCK_DESTROY, found, socket.encode)
}

// Held counts, by address in addrs, the connections from remote clients to sockets of this host.
func Held(addrs ...netip.Addr) (map[netip.Addr]int, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses of this host: %w", err)
	}
	here := make(map[netip.Addr]bool)
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			here[p.Addr()] = true
		}
	}
	held := make(map[netip.Addr]int)
	for _, a := range addrs {
		held[a], here[a] = 0, true
	}
	err = eachSocket(connected, 0, func(_ socket, at ends) {
		if _, asked := held[at.local.Addr()]; asked && !here[at.remote.Addr()] {
			held[at.local.Addr()]++
		}
	})
	return held, err
}

// Listening returns the addresses and ports at which this host listens for TCP, in both families.
func Listening() (out []netip.AddrPort, err error) {
	err = eachSocket(listening, 0, func(_ socket, at ends) { out = append(out, at.local) })
	return out, err
}

// eachSocket calls f for each socket in the given states that is connected to a remote port; 0 means any.
func eachSocket(states uint32, port uint16, f func(socket, ends)) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // an IPv6 socket may carry IPv4
		s := socket{family: family}
		binary.BigEndian.PutUint16(s.id[2:], port)
		request, err := s.encode()
		if err != nil {
			return err
		}
		binary.NativeEndian.PutUint32(request[4:], states)
		err = dump(unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY, request, func(b []byte) error {
			s, at, err := decodeSocket(b)
			if err == nil {
				f(s, at)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list sockets: %w", err)
		}
	}
	return nil
}

// encode returns a struct inet_diag_req_v2 for the socket.
func (s socket) encode() ([]byte, error) {
	b := []byte{s.family, unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, connected)
	return append(b, s.id[:]...), nil
}

// decodeSocket decodes a struct inet_diag_msg.
func decodeSocket(b []byte) (socket, ends, error) {
	const head = 4 // family, state, timer, retransmissions
	var s socket
	if len(b) < head+len(s.id) {
		return socket{}, ends{}, errors.New("socket message is too short")
	}
	s.family = b[0]
	copy(s.id[:], b[head:])
	length := 4
	if s.family == unix.AF_INET6 {
		length = 16
	}
	end := func(port, addr int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(s.id[addr : addr+length])
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(s.id[port:]))
	}
	return s, ends{local: end(0, 4), remote: end(2, 20)}, nil
}
