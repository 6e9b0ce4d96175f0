// Package conntrack reads and ends TCP connections with a translated destination, and lists the host's TCP sockets.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Connection is a TCP connection with a destination that this host translates.
type Connection struct {
	Client netip.AddrPort
	To     netip.AddrPort // destination before translation
	Server netip.AddrPort // destination after translation
	Phase  Phase

	original []byte // CTA_TUPLE_ORIG and
	id       []byte // CTA_ID identify it
	zone     []byte // CTA_ZONE; nil without one
}

// Phase is the phase of a connection.
type Phase int

const (
	// Opening means half-open.
	Opening Phase = iota
	// Established is open.
	Established
	// Ended means closed; the kernel still remembers it.
	Ended
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h and _tcp.h.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctTupleOrig  = 1
	ctTupleReply = 2
	ctStatus     = 3
	ctProtoInfo  = 4
	ctID         = 12
	ctZone       = 18
	ctFilter     = 25

	ctTupleIP, ctTupleProto                                 = 1, 2
	ctIPv4Source, ctIPv4Dest, ctIPv6Source, ctIPv6Dest      = 1, 2, 3, 4
	ctProtoNumber, ctProtoSourcePort, ctProtoDestPort       = 1, 2, 3
	ctProtoInfoTCP, ctTCPState                              = 1, 1
	ctFilterOriginal                                        = 1
	ctFilterDest, ctFilterProtoNumber, ctFilterProtoDest    = 1 << 1, 1 << 3, 1 << 5
	ctDestTranslated                                        = 1 << 5 // IPS_DST_NAT
	tcpSynSent, tcpSynRecv, tcpTimeWait, tcpClose, synSent2 = 1, 2, 7, 8, 9
)

// Translated returns the connections to an address and port that this host translates; port 0 means any. Since
// Linux 5.8 the kernel filters them, so that a hundred thousand others cost little.
func Translated(dst netip.AddrPort) ([]Connection, error) {
	request, err := encodeTo(dst)
	if err != nil {
		return nil, fmt.Errorf("read connections to %s: %w", dst, err)
	}
	var out []Connection
	err = dump(unix.NETLINK_NETFILTER, ctGet, request, func(b []byte) error {
		c, ok, err := decodeConnection(b)
		if ok && c.To.Addr() == dst.Addr() && (dst.Port() == 0 || c.To.Port() == dst.Port()) {
			out = append(out, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read connections to %s: %w", dst, err)
	}
	return out, nil
}

// dump calls decode with each answer to a request.
func dump(family int, typ netlink.HeaderType, request []byte, decode func([]byte) error) error {
	conn, err := dial(family)
	if err != nil {
		return err
	}
	defer conn.Close()
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump}, Data: request})
	if err != nil {
		return err
	}
	for _, m := range replies {
		if err := decode(m.Data); err != nil {
			return err
		}
	}
	return nil
}

// answerTimeout bounds a call to the kernel. Listing 20,000 sockets takes up to 0.4 s.
const answerTimeout = 10 * time.Second

// dial opens a netlink socket. Its calls end after [answerTimeout], even if the kernel does not answer.
func dial(family int) (*netlink.Conn, error) {
	conn, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("set the deadline of a netlink call: %w", err)
	}
	return conn, nil
}

// netfilterHeader returns a struct nfgenmsg.
func netfilterHeader(addr netip.Addr) []byte {
	if addr.Is4() {
		return []byte{unix.AF_INET, 0, 0, 0}
	}
	return []byte{unix.AF_INET6, 0, 0, 0}
}

// encodeTo returns a request for the connections to an address and port. It does not filter by an IPv6 address:
// Linux, up to 6.18 at least, would omit exactly the matching connections, as its comparison is inverted
// (ctnetlink_filter_match_tuple).
func encodeTo(dst netip.AddrPort) ([]byte, error) {
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	flags := uint32(ctFilterProtoNumber)
	attrs.Nested(ctTupleOrig, func(tuple *netlink.AttributeEncoder) error {
		tuple.Nested(ctTupleIP, func(ip *netlink.AttributeEncoder) error {
			if dst.Addr().Is4() {
				flags |= ctFilterDest
				ip.Bytes(ctIPv4Dest, dst.Addr().AsSlice())
			} else {
				ip.Bytes(ctIPv6Dest, dst.Addr().AsSlice())
			}
			return nil
		})
		tuple.Nested(ctTupleProto, func(proto *netlink.AttributeEncoder) error {
			proto.Uint8(ctProtoNumber, unix.IPPROTO_TCP)
			if dst.Port() != 0 {
				flags |= ctFilterProtoDest
				proto.Uint16(ctProtoDestPort, dst.Port())
			}
			return nil
		})
		return nil
	})
	attrs.Nested(ctFilter, func(filter *netlink.AttributeEncoder) error {
		filter.ByteOrder = binary.NativeEndian
		filter.Uint32(ctFilterOriginal, flags)
		return nil
	})
	encoded, err := attrs.Encode()
	return append(netfilterHeader(dst.Addr()), encoded...), err
}

// decodeConnection decodes an entry of conntrack. It reports false if the entry is not a TCP connection with
// a translated destination.
func decodeConnection(b []byte) (c Connection, ok bool, err error) {
	header := len(netfilterHeader(netip.Addr{}))
	if len(b) < header {
		return Connection{}, false, errors.New("conntrack message is too short")
	}
	attrs, err := netlink.NewAttributeDecoder(b[header:])
	if err != nil {
		return Connection{}, false, fmt.Errorf("decode conntrack message: %w", err)
	}
	attrs.ByteOrder = binary.BigEndian
	var original, reply tuple
	var status uint32
	for attrs.Next() {
		switch attrs.Type() {
		case ctTupleOrig:
			c.original = slices.Clone(attrs.Bytes())
			attrs.Nested(original.decode)
		case ctTupleReply:
			attrs.Nested(reply.decode)
		case ctStatus:
			status = attrs.Uint32()
		case ctProtoInfo:
			attrs.Nested(c.Phase.decode)
		case ctID:
			c.id = slices.Clone(attrs.Bytes())
		case ctZone:
			c.zone = slices.Clone(attrs.Bytes())
		}
	}
	if err := attrs.Err(); err != nil {
		return Connection{}, false, fmt.Errorf("decode conntrack message: %w", err)
	}
	c.Client, c.To, c.Server = original.source, original.dest, reply.source
	ok = status&ctDestTranslated != 0 && original.protocol == unix.IPPROTO_TCP &&
		c.Client.IsValid() && c.To.IsValid() && c.Server.IsValid()
	return c, ok, nil
}

// eachNested calls f with each attribute within the present one.
func eachNested(attrs *netlink.AttributeDecoder, f func(*netlink.AttributeDecoder)) {
	attrs.Nested(func(inner *netlink.AttributeDecoder) error {
		for inner.Next() {
			f(inner)
		}
		return nil
	})
}

// tuple is one direction of a connection.
type tuple struct {
	source, dest netip.AddrPort
	protocol     uint8
}

func (t *tuple) decode(attrs *netlink.AttributeDecoder) error {
	var source, dest netip.Addr
	var sourcePort, destPort uint16
	for attrs.Next() {
		switch attrs.Type() {
		case ctTupleIP:
			eachNested(attrs, func(ip *netlink.AttributeDecoder) {
				switch ip.Type() {
				case ctIPv4Source, ctIPv6Source:
					source, _ = netip.AddrFromSlice(ip.Bytes())
				case ctIPv4Dest, ctIPv6Dest:
					dest, _ = netip.AddrFromSlice(ip.Bytes())
				}
			})
		case ctTupleProto:
			eachNested(attrs, func(proto *netlink.AttributeDecoder) {
				switch proto.Type() {
				case ctProtoNumber:
					t.protocol = proto.Uint8()
				case ctProtoSourcePort:
					sourcePort = proto.Uint16()
				case ctProtoDestPort:
					destPort = proto.Uint16()
				}
			})
		}
	}
	t.source, t.dest = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(dest, destPort)
	return nil
}

// decode decodes conntrack's state of the TCP connection.
func (p *Phase) decode(attrs *netlink.AttributeDecoder) error {
	for attrs.Next() {
		if attrs.Type() != ctProtoInfoTCP {
			continue
		}
		eachNested(attrs, func(tcp *netlink.AttributeDecoder) {
			if tcp.Type() != ctTCPState {
				return
			}
			switch tcp.Uint8() {
			case tcpSynSent, tcpSynRecv, synSent2:
				*p = Opening
			case tcpTimeWait, tcpClose:
				*p = Ended
			default:
				*p = Established
			}
		})
	}
	return nil
}

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
