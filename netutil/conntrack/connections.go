// Package conntrack reads and ends the TCP connections whose destination this host translates.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Connection is a TCP connection whose destination this host translates.
type Connection struct {
	Client netip.AddrPort // who opened it
	To     netip.AddrPort // what it was opened to
	Server netip.AddrPort // where it goes instead
	Phase  Phase

	original []byte // CTA_TUPLE_ORIG and
	id       []byte // CTA_ID, by which the kernel knows it
	zone     []byte // CTA_ZONE, if it has one
}

// Phase is how far a connection is in its life.
type Phase int

const (
	// Opening has no answer yet.
	Opening Phase = iota
	// Established is open.
	Established
	// Ended is closed by both, and remembered for a while.
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

// Translated returns the connections that were opened to an address and port, or to any
// port if that is 0, and that this host translates. Linux filters them since 5.8, so
// that a hundred thousand others cost little.
func Translated(to netip.AddrPort) ([]Connection, error) {
	request, err := encodeTo(to)
	if err != nil {
		return nil, fmt.Errorf("read connections to %s: %w", to, err)
	}
	var out []Connection
	err = dump(unix.NETLINK_NETFILTER, ctGet, request, func(b []byte) error {
		c, ok, err := decodeConnection(b)
		if ok && c.To.Addr() == to.Addr() && (to.Port() == 0 || c.To.Port() == to.Port()) {
			out = append(out, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read connections to %s: %w", to, err)
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

// answerTimeout bounds a call to the kernel. A list of 20,000 sockets takes up to 0.4 s.
const answerTimeout = 10 * time.Second

// dial opens a netlink socket whose calls end after [answerTimeout], even if the kernel does not answer.
func dial(family int) (*netlink.Conn, error) {
	conn, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("limit the time of a netlink call: %w", err)
	}
	return conn, nil
}

// netfilterHeader is a struct nfgenmsg.
func netfilterHeader(addr netip.Addr) []byte {
	if addr.Is4() {
		return []byte{unix.AF_INET, 0, 0, 0}
	}
	return []byte{unix.AF_INET6, 0, 0, 0}
}

// encodeTo asks for connections that were opened to an address and port. It does not
// name an IPv6 address, as Linux, up to 6.18 at least, would leave out just those
// connections: it compares the wrong way round (ctnetlink_filter_match_tuple).
func encodeTo(to netip.AddrPort) ([]byte, error) {
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	flags := uint32(ctFilterProtoNumber)
	attrs.Nested(ctTupleOrig, func(tuple *netlink.AttributeEncoder) error {
		tuple.Nested(ctTupleIP, func(ip *netlink.AttributeEncoder) error {
			if to.Addr().Is4() {
				flags |= ctFilterDest
				ip.Bytes(ctIPv4Dest, to.Addr().AsSlice())
			} else {
				ip.Bytes(ctIPv6Dest, to.Addr().AsSlice())
			}
			return nil
		})
		tuple.Nested(ctTupleProto, func(proto *netlink.AttributeEncoder) error {
			proto.Uint8(ctProtoNumber, unix.IPPROTO_TCP)
			if to.Port() != 0 {
				flags |= ctFilterProtoDest
				proto.Uint16(ctProtoDestPort, to.Port())
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
	return append(netfilterHeader(to.Addr()), encoded...), err
}

// decodeConnection reads an entry of conntrack; ok is false if it is not a TCP
// connection with a translated destination.
func decodeConnection(b []byte) (c Connection, ok bool, err error) {
	header := len(netfilterHeader(netip.Addr{}))
	if len(b) < header {
		return Connection{}, false, errors.New("conntrack message is too short")
	}
	attrs, err := netlink.NewAttributeDecoder(b[header:])
	if err != nil {
		return Connection{}, false, fmt.Errorf("conntrack message: %w", err)
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
		return Connection{}, false, fmt.Errorf("conntrack message: %w", err)
	}
	c.Client, c.To, c.Server = original.source, original.dest, reply.source
	ok = status&ctDestTranslated != 0 && original.protocol == unix.IPPROTO_TCP &&
		c.Client.IsValid() && c.To.IsValid() && c.Server.IsValid()
	return c, ok, nil
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
			attrs.Nested(func(ip *netlink.AttributeDecoder) error {
				for ip.Next() {
					switch ip.Type() {
					case ctIPv4Source, ctIPv6Source:
						source, _ = netip.AddrFromSlice(ip.Bytes())
					case ctIPv4Dest, ctIPv6Dest:
						dest, _ = netip.AddrFromSlice(ip.Bytes())
					}
				}
				return nil
			})
		case ctTupleProto:
			attrs.Nested(func(proto *netlink.AttributeDecoder) error {
				for proto.Next() {
					switch proto.Type() {
					case ctProtoNumber:
						t.protocol = proto.Uint8()
					case ctProtoSourcePort:
						sourcePort = proto.Uint16()
					case ctProtoDestPort:
						destPort = proto.Uint16()
					}
				}
				return nil
			})
		}
	}
	t.source, t.dest = netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(dest, destPort)
	return nil
}

// decode reads the state of TCP as conntrack sees it.
func (p *Phase) decode(attrs *netlink.AttributeDecoder) error {
	for attrs.Next() {
		if attrs.Type() != ctProtoInfoTCP {
			continue
		}
		attrs.Nested(func(tcp *netlink.AttributeDecoder) error {
			for tcp.Next() {
				if tcp.Type() != ctTCPState {
					continue
				}
				switch tcp.Uint8() {
				case tcpSynSent, tcpSynRecv, synSent2:
					*p = Opening
				case tcpTimeWait, tcpClose:
					*p = Ended
				default:
					*p = Established
				}
			}
			return nil
		})
	}
	return nil
}
