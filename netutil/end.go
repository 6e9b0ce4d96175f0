package netutil

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// End ends connections at once, for clients that would otherwise wait for a server that is
// gone. Sockets of this host's own clients get an error. Translation ends for all: the next
// packet of another client meets nobody who knows the connection, and is answered by a
// reset. A connection that is only being opened goes on: its next attempt is a new one.
//
// It needs CAP_NET_ADMIN. All are tried, whatever fails; what has ended already is no error.
func End(connections []Connection) error {
	var open []Connection
	for _, c := range connections {
		if c.Phase == Established {
			open = append(open, c)
		}
	}
	// Sockets first, so that their resets are translated still.
	sockets := requestAll(unix.NETLINK_SOCK_DIAG, unix.SOCK_DESTROY, open, encodeSocket)
	entries := requestAll(unix.NETLINK_NETFILTER, ctDelete, connections, encodeDelete)
	if sockets != nil {
		sockets = fmt.Errorf("end sockets: %w", sockets) // EOPNOTSUPP without CONFIG_INET_DIAG_DESTROY
	}
	if entries != nil {
		entries = fmt.Errorf("end translation: %w", entries)
	}
	return errors.Join(sockets, entries)
}

// requestAll sends a request for each connection, and returns the first error that is
// none of something that is not there.
func requestAll(family int, typ netlink.HeaderType, connections []Connection, encode func(Connection) ([]byte, error)) error {
	if len(connections) == 0 {
		return nil
	}
	conn, err := netlink.Dial(family, nil)
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	defer conn.Close()
	_ = conn.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request
	var first error
	for some := range slices.Chunk(connections, answersInARow) {
		messages := make([]netlink.Message, 0, len(some))
		for _, c := range some {
			data, err := encode(c)
			if err != nil {
				return err
			}
			messages = append(messages, netlink.Message{
				Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge}, Data: data,
			})
		}
		if _, err := conn.SendMessages(messages); err != nil {
			return err
		}
		for range messages {
			if _, err := conn.Receive(); err != nil && !errors.Is(err, unix.ENOENT) && first == nil {
				first = err
			}
		}
	}
	return first
}

// encodeDelete names an entry of conntrack.
func encodeDelete(c Connection) ([]byte, error) {
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(ctTupleOrig|netlink.Nested, c.original)
	attrs.Bytes(ctID, c.id)
	if c.zone != nil {
		attrs.Bytes(ctZone, c.zone)
	}
	encoded, err := attrs.Encode()
	return append(netfilterHeader(c.To.Addr()), encoded...), err
}

// encodeSocket names the client's socket, if it is one of this host: a struct
// inet_diag_req_v2 (linux/inet_diag.h).
func encodeSocket(c Connection) ([]byte, error) {
	family := byte(unix.AF_INET)
	if c.Client.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, c.Client.Port())
	b = binary.BigEndian.AppendUint16(b, c.To.Port())
	for _, addr := range []netip.Addr{c.Client.Addr(), c.To.Addr()} {
		b = append(b, append(addr.AsSlice(), make([]byte, 16)...)[:16]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)               // on any link
	return append(b, slices.Repeat([]byte{0xff}, 8)...), nil // of any identity
}
