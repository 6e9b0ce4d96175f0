package ruleset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library supports no expressions about one direction of a connection: rules with [Ct] use the socket directly.

// Rule is a rule of a chain.
type Rule struct {
	Chain   string     // set when read
	Comment string     // describes the rule
	Exprs   []expr.Any // nil when read
	Packets uint64     // value of its first counter, when read

	found []attributes // of its expressions, when read
}

// NewRule returns a rule with a comment that describes it.
func NewRule(comment string, exprs ...[]expr.Any) Rule {
	return Rule{Comment: comment, Exprs: Join(exprs...)}
}

// Same compares the comments and expressions of two rules of a chain, except values of counters.
func (r Rule) Same(other Rule) bool {
	return r.Comment == other.Comment && slices.EqualFunc(r.attributes(), other.attributes(), attributes.same)
}

func (r Rule) attributes() []attributes {
	all := slices.Clone(r.found)
	for _, e := range r.Exprs {
		b, _ := encodeExpr(e) // an error leaves an expression that equals none
		all = append(all, make(attributes).add("", b))
	}
	return all
}

// attributes are the netlink attributes of an expression, by their path of types.
type attributes map[string]string

// Paths of attributes.
const (
	exprName = "/1"   // NFTA_EXPR_NAME
	packets  = "/2/2" // NFTA_EXPR_DATA, NFTA_COUNTER_PACKETS
)

// add adds nested attributes, or a value. A value that looks like attributes becomes the same in each rule.
func (a attributes) add(path string, b []byte) attributes {
	nested, err := netlink.UnmarshalAttributes(b)
	if err != nil || len(nested) == 0 {
		a[path] = string(b)
	}
	for _, attr := range nested {
		a.add(fmt.Sprintf("%s/%d", path, attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)), attr.Data)
	}
	return a
}

// value returns a value without zeros at its end. A missing attribute equals a zero one.
func (a attributes) value(path string) string { return strings.TrimRight(a[path], "\x00") }

// same ignores additions of the kernel: counts, and the other end of a range for NAT.
func (a attributes) same(b attributes) bool {
	name := a.value(exprName)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for path := range all {
		x, y := a.value(path), b.value(path)
		if added := name == "counter" || name == "nat" && (x == "" || y == ""); x != y && (!added || path == exprName) {
			return false
		}
	}
	return name != ""
}

// AddRules queues rules at the end of a chain.
func AddRules(c *nftables.Conn, in *nftables.Chain, rules []Rule) {
	for _, r := range rules {
		add := &nftables.Rule{Table: in.Table, Chain: in, Exprs: r.Exprs}
		if r.Comment != "" {
			add.UserData = userdata.AppendString(nil, userdata.TypeComment, r.Comment)
		}
		c.AddRule(add)
	}
}

// Ct loads an address or port of the packet's connection in one direction. Only [Socket.Fill] can write it.
type Ct struct {
	expr.Ct      // Key and Register
	Reply   bool // in the direction of the answers
}

// Rules reads all rules of a table, in order within each chain.
func (s *Socket) Rules(t *nftables.Table) (rules []Rule, err error) {
	err = s.Do(func(*nftables.Conn) error {
		attrs := netlink.NewAttributeEncoder()
		attrs.String(unix.NFTA_RULE_TABLE, t.Name)
		data, err := attrs.Encode()
		if err != nil {
			return err
		}
		replies, err := s.socket.Execute(message(unix.NFT_MSG_GETRULE, netlink.Request|netlink.Dump, t.Family, data))
		if err != nil {
			return fmt.Errorf("read rules: %w", err)
		}
		for _, m := range replies {
			r, err := decodeRule(m.Data)
			if err != nil {
				return fmt.Errorf("read rules: %w", err)
			}
			rules = append(rules, r)
		}
		return nil
	})
	return rules, err
}

// Fill replaces the rules of a chain in its own batch.
func (s *Socket) Fill(in *nftables.Table, chain string, rules []Rule) error {
	return s.Do(func(*nftables.Conn) error {
		attrs := netlink.NewAttributeEncoder()
		attrs.String(unix.NFTA_RULE_TABLE, in.Name)
		attrs.String(unix.NFTA_RULE_CHAIN, chain)
		data, err := attrs.Encode()
		if err != nil {
			return err
		}
		const ask = netlink.Request | netlink.Acknowledge
		changes := []netlink.Message{message(unix.NFT_MSG_DELRULE, ask, in.Family, data)}
		for _, r := range rules {
			data, err := encodeRule(in, chain, r)
			if err != nil {
				return err
			}
			changes = append(changes, message(unix.NFT_MSG_NEWRULE, ask|netlink.Create|netlink.Append, in.Family, data))
		}
		return s.sendBatch(changes...)
	})
}

// sendBatch applies all changes or none.
func (s *Socket) sendBatch(changes ...netlink.Message) error {
	all := append([]netlink.Message{batchMark(unix.NFNL_MSG_BATCH_BEGIN)}, append(changes, batchMark(unix.NFNL_MSG_BATCH_END))...)
	if _, err := s.socket.SendMessages(all); err != nil {
		return err
	}
	var failed error
	for range changes {
		if _, err := s.socket.Receive(); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// message returns a message to nf_tables, with a struct nfgenmsg.
func message(typ int, flags netlink.HeaderFlags, family nftables.TableFamily, attrs []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ), Flags: flags},
		Data:   append([]byte{byte(family), unix.NFNETLINK_V0, 0, 0}, attrs...),
	}
}

// batchMark returns the message that begins or ends a batch.
func batchMark(typ netlink.HeaderType) netlink.Message {
	data := binary.BigEndian.AppendUint16([]byte{0, unix.NFNETLINK_V0}, unix.NFNL_SUBSYS_NFTABLES)
	return netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request}, Data: data}
}

func encodeRule(in *nftables.Table, chain string, r Rule) ([]byte, error) {
	attrs := netlink.NewAttributeEncoder()
	attrs.String(unix.NFTA_RULE_TABLE, in.Name)
	attrs.String(unix.NFTA_RULE_CHAIN, chain)
	attrs.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
		for _, e := range r.Exprs {
			data, err := encodeExpr(e)
			if err != nil {
				return err
			}
			list.Bytes(unix.NFTA_LIST_ELEM|netlink.Nested, data)
		}
		return nil
	})
	attrs.Bytes(unix.NFTA_RULE_USERDATA, userdata.AppendString(nil, userdata.TypeComment, r.Comment))
	return attrs.Encode()
}

func encodeExpr(e expr.Any) ([]byte, error) {
	if ct, ok := e.(*Ct); ok {
		return ct.encode()
	}
	return expr.Marshal(unix.NFPROTO_UNSPEC, e) // only expressions of xtables depend on the family
}

// encode returns the expression's message, including its name.
func (c *Ct) encode() ([]byte, error) {
	var direction uint8 // IP_CT_DIR_ORIGINAL
	if c.Reply {
		direction = 1
	}
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.String(unix.NFTA_EXPR_NAME, "ct")
	attrs.Nested(unix.NFTA_EXPR_DATA, func(data *netlink.AttributeEncoder) error {
		data.Uint32(unix.NFTA_CT_KEY, uint32(c.Key))
		data.Uint32(unix.NFTA_CT_DREG, c.Register)
		data.Uint8(unix.NFTA_CT_DIRECTION, direction)
		return nil
	})
	return attrs.Encode()
}

// decodeRule decodes a message about a rule.
func decodeRule(b []byte) (r Rule, err error) {
	const header = 4 // size of netfilter's header before the attributes
	if len(b) < header {
		return Rule{}, errors.New("rule message is too short")
	}
	attrs, err := netlink.NewAttributeDecoder(b[header:])
	if err != nil {
		return Rule{}, fmt.Errorf("decode rule message: %w", err)
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NFTA_RULE_CHAIN:
			r.Chain = attrs.String()
		case unix.NFTA_RULE_USERDATA:
			r.Comment = ReadComment(attrs.Bytes())
		case unix.NFTA_RULE_EXPRESSIONS:
			attrs.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					e := make(attributes).add("", list.Bytes())
					if n := e[packets]; e.value(exprName) == "counter" && len(n) == 8 && r.Packets == 0 {
						r.Packets = binary.BigEndian.Uint64([]byte(n))
					}
					r.found = append(r.found, e)
				}
				return nil
			})
		}
	}
	return r, attrs.Err()
}

// ReadComment returns the comment in a rule's user data, empty without one. Other programs may have written the data.
// Each piece has a type, a length and a zero-terminated text.
func ReadComment(pieces []byte) string {
	for len(pieces) >= 2 {
		typ, n := pieces[0], int(pieces[1])
		pieces = pieces[2:]
		if n > len(pieces) {
			return ""
		}
		if userdata.Type(typ) == userdata.TypeComment && n > 0 {
			return string(pieces[:n-1])
		}
		pieces = pieces[n:]
	}
	return ""
}

// Headers for [Load].
const (
	Network   = expr.PayloadBaseNetworkHeader
	Transport = expr.PayloadBaseTransportHeader
)

// Load loads part of a packet header into register 1. All functions below use this register.
func Load(base expr.PayloadBase, offset, length uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: length}}
}

// Meta loads metadata of the packet.
func Meta(key expr.MetaKey) []expr.Any { return []expr.Any{&expr.Meta{Key: key, Register: 1}} }

// Word returns the register at the n-th word of four bytes, under the name that the kernel gives it.
func Word(n uint32) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + n/4
	}
	return unix.NFT_REG32_00 + n
}

// Equal continues if the loaded value equals data.
func Equal(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// NotEqual continues if the loaded value differs from data.
func NotEqual(data ...byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data}}
}

// In continues if the named set contains the loaded value.
func In(name string) []expr.Any { return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name}} }

// NotIn continues if the named set lacks the loaded value.
func NotIn(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: name, Invert: true}}
}

// TCP continues if the packet is TCP.
func TCP() []expr.Any { return Join(Meta(expr.MetaKeyL4PROTO), Equal(unix.IPPROTO_TCP)) }

// SYN continues if the segment opens a connection: SYN without FIN, RST and ACK (RFC 9293, section 3.1).
func SYN() []expr.Any {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	flags := []expr.Any{&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}}}
	return Join(Load(Transport, 13, 1), flags, Equal(syn))
}

// To continues if the packet's destination is addr.
func To(addr netip.Addr) []expr.Any {
	if addr.Is4() {
		return Join(Meta(expr.MetaKeyNFPROTO), Equal(unix.NFPROTO_IPV4), Load(Network, 16, 4), Equal(addr.AsSlice()...))
	}
	return Join(Meta(expr.MetaKeyNFPROTO), Equal(unix.NFPROTO_IPV6), Load(Network, 24, 16), Equal(addr.AsSlice()...))
}

// Local continues if the packet's destination is an address of this host.
func Local() []expr.Any {
	return Join([]expr.Any{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}},
		Equal(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)...))
}

// Translated parts of a connection: IPS_SRC_NAT and IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const (
	Source      = 1 << 4
	Destination = 1 << 5
)

// Translated continues if the kernel translates any of the given parts of the packet's connection.
func Translated(parts uint32) []expr.Any {
	return Join([]expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, parts), Xor: make([]byte, 4)},
	}, NotEqual(0, 0, 0, 0))
}

// Loopback returns the link type of lo as [Meta] loads it.
func Loopback() []byte { return binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK) }

// LinkName returns a link's name as [Meta] loads it.
func LinkName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ)...)[:unix.IFNAMSIZ]
}

// Join concatenates expressions.
func Join(parts ...[]expr.Any) []expr.Any { return slices.Concat(parts...) }
