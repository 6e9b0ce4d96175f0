package conntrack

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// End ends connections at once, so that clients do not wait for a dead server. It closes sockets of this host's own
// clients, which get an error. It deletes the translation of all connections, so that the kernel answers the next
// packet of a remote client with a reset. A half-open connection's next SYN starts a new connection.
//
// End needs CAP_NET_ADMIN. It tries all connections even after errors. An ended connection is no error.
func End(connections []Connection) error {
	// Sockets come first, so that their resets are still translated.
	sockets := endSockets(connections)
	if sockets != nil {
		sockets = fmt.Errorf("end sockets: %w", sockets) // EOPNOTSUPP without CONFIG_INET_DIAG_DESTROY
	}
	entries := requestAll(unix.NETLINK_NETFILTER, ctDelete, connections, encodeDelete)
	if entries != nil {
		entries = fmt.Errorf("end translation: %w", entries)
	}
	return errors.Join(sockets, entries)
}

// answersInARow is the number of answers that fit every socket's receive buffer.
const answersInARow = 64

// requestAll sends a request for each item, and returns the first error. A missing object is no error.
func requestAll[T any](family int, typ netlink.HeaderType, items []T, encode func(T) ([]byte, error)) error {
	if len(items) == 0 {
		return nil
	}
	conn, err := dial(family)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request
	var first error
	for some := range slices.Chunk(items, answersInARow) {
		messages := make([]netlink.Message, 0, len(some))
		for _, item := range some {
			data, err := encode(item)
			if err != nil {
				return err
			}
			messages = append(messages, netlink.Message{
				Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge}, Data: data,
			})
		}
		if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
			return err
		}
		if _, err := conn.SendMessages(messages); err != nil {
			return err
		}
		for range messages {
			_, err := conn.Receive()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) && first == nil {
				first = err
			}
		}
	}
	return first
}

// encodeDelete returns a request that deletes the connection's entry.
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
