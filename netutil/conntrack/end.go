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

// End ends connections at once, so that clients do not wait for a server that is gone.
// Sockets of this host's own clients get an error. End ends the translation of all, so
// that the kernel answers the next packet of another client by a reset. A connection that
// is only being opened goes on: its next attempt is a new one.
//
// End needs CAP_NET_ADMIN. It tries all, whatever fails; what has ended already is no error.
func End(connections []Connection) error {
	// Sockets first, so that their resets are translated still.
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

// answersInARow fit every socket's receive buffer.
const answersInARow = 64

// requestAll sends a request about each, and returns the first error other than that
// something is not there.
func requestAll[T any](family int, typ netlink.HeaderType, about []T, encode func(T) ([]byte, error)) error {
	if len(about) == 0 {
		return nil
	}
	conn, err := dial(family)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetOption(netlink.CapAcknowledge, true) // errors need not repeat the request
	var first error
	for some := range slices.Chunk(about, answersInARow) {
		messages := make([]netlink.Message, 0, len(some))
		for _, one := range some {
			data, err := encode(one)
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
