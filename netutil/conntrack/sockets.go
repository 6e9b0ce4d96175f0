package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// socket identifies one of this host's sockets by a struct inet_diag_sockid with the
// cookie that no other socket has (linux/inet_diag.h).
type socket struct {
	family byte
	id     [48]byte
}

// ends are the addresses and ports of a connection, seen from one of its ends.
type ends struct{ local, remote netip.AddrPort }

// connected are the states of TCP (net/tcp_states.h) in which both sides know each other.
// Without them the kernel would choose the listener at the local port if no socket has
// the addresses.
const connected = 1<<1 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11 // ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING

// endSockets ends those sockets of this host by which it opened connections that are established.
func endSockets(connections []Connection) error {
	wanted := make(map[ends]bool)
	ports := make(map[socketQuery]bool)
	for _, c := range connections {
		if c.Phase != Established {
			continue
		}
		wanted[ends{c.Client, c.To}] = true
		ports[socketQuery{unix.AF_INET6, c.To.Port()}] = true // which may carry IPv4, too
		if c.To.Addr().Is4() {
			ports[socketQuery{unix.AF_INET, c.To.Port()}] = true
		}
	}
	var found []socket
	for q := range ports {
		sockets, err := q.find(wanted)
		if err != nil {
			return err
		}
		found = append(found, sockets...)
	}
	return requestAll(unix.NETLINK_SOCK_DIAG, unix.SOCK_DESTROY, found, socket.encode)
}

// socketQuery asks for sockets that are connected to a port.
type socketQuery struct {
	family byte
	port   uint16
}

// find returns those whose ends are wanted.
func (q socketQuery) find(wanted map[ends]bool) ([]socket, error) {
	s := socket{family: q.family}
	binary.BigEndian.PutUint16(s.id[2:], q.port)
	request, err := s.encode()
	if err != nil {
		return nil, err
	}
	var out []socket
	err = dump(unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY, request, func(b []byte) error {
		s, at, err := decodeSocket(b)
		if wanted[at] {
			out = append(out, s)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	return out, nil
}

// encode names the socket in a request: a struct inet_diag_req_v2.
func (s socket) encode() ([]byte, error) {
	b := []byte{s.family, unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, connected)
	return append(b, s.id[:]...), nil
}

// decodeSocket reads a struct inet_diag_msg.
func decodeSocket(b []byte) (socket, ends, error) {
	const head = 4 // family, state, timer, retransmissions
	var s socket
	if len(b) < head+len(s.id) {
		return socket{}, ends{}, errors.New("message about a socket is too short")
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
