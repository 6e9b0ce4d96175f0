package ruleset

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library cannot write or read an expression that looks at one direction of a
// connection, so such rules use the socket directly.

// Rule is a rule of a chain.
type Rule struct {
	Chain   string
	Comment string
	Exprs   []expr.Any // not known of one that was read
	Size    int        // how many expressions it has
	Packets uint64     // what its first counter has counted
}

// NewRule returns a rule with a comment that tells what it does.
func NewRule(comment string, exprs ...[]expr.Any) Rule {
	all := Join(exprs...)
	return Rule{Comment: comment, Size: len(all), Exprs: all}
}

// Same reports whether two rules of a chain are the same as far as can be told: the kernel may write expressions in another way
// than it was told them.
func (r Rule) Same(other Rule) bool { return r.Comment == other.Comment && r.Size == other.Size }

// AddRules adds to a batch that a chain has rules, behind those that it has.
func AddRules(c *nftables.Conn, in *nftables.Chain, rules []Rule) {
	for _, r := range rules {
		c.AddRule(&nftables.Rule{
			Table: in.Table, Chain: in, Exprs: r.Exprs, UserData: userdata.AppendString(nil, userdata.TypeComment, r.Comment),
		})
	}
}

// Ct loads a part of the addresses of a connection, in one of its directions. Only
// [Socket.Fill] can write it.
type Ct struct {
	expr.Ct      // Key and Register
	Reply   bool // not as it was opened, but as it is answered
}

// Rules reads all rules of a table, in the order of each chain.
func (s *Socket) Rules(of *nftables.Table) (rules []Rule, err error) {
	err = s.Do(func(*nftables.Conn) error {
		attrs := netlink.NewAttributeEncoder()
		attrs.String(unix.NFTA_RULE_TABLE, of.Name)
		data, err := attrs.Encode()
		if err != nil {
			return err
		}
		replies, err := s.socket.Execute(message(unix.NFT_MSG_GETRULE, netlink.Request|netlink.Dump, of.Family, data))
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

// Fill replaces the rules of a chain, in a batch of its own.
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

// sendBatch makes changes, all or none.
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

// message makes one to nf_tables, with a struct nfgenmsg.
func message(typ int, flags netlink.HeaderFlags, family nftables.TableFamily, attrs []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ), Flags: flags},
		Data:   append([]byte{byte(family), unix.NFNETLINK_V0, 0, 0}, attrs...),
	}
}

// batchMark begins or ends a batch.
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
			var data []byte
			var err error
			if ct, ok := e.(*Ct); ok {
				data, err = ct.encode()
			} else {
				data, err = expr.Marshal(byte(in.Family), e)
			}
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

// encode makes an expression with its name.
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

// decodeRule reads a message about a rule.
func decodeRule(b []byte) (r Rule, err error) {
	const header = 4 // of netfilter's, before the attributes
	if len(b) < header {
		return Rule{}, errors.New("message about a rule is too short")
	}
	attrs, err := netlink.NewAttributeDecoder(b[header:])
	if err != nil {
		return Rule{}, fmt.Errorf("message about a rule: %w", err)
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
					r.Size++
					list.Nested(r.decode)
				}
				return nil
			})
		}
	}
	return r, attrs.Err()
}

// decode reads an expression, if it is the first counter.
func (r *Rule) decode(attrs *netlink.AttributeDecoder) error {
	counter := false
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NFTA_EXPR_NAME:
			counter = attrs.String() == "counter"
		case unix.NFTA_EXPR_DATA:
			if !counter || r.Packets != 0 {
				continue
			}
			attrs.Nested(func(data *netlink.AttributeDecoder) error {
				data.ByteOrder = binary.BigEndian
				for data.Next() {
					if data.Type() == unix.NFTA_COUNTER_PACKETS {
						r.Packets = data.Uint64()
					}
				}
				return nil
			})
		}
	}
	return nil
}

// ReadComment finds the comment in the user data of a rule, which anybody may have written: each piece has a type,
// a length, and a text that ends with a zero.
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
