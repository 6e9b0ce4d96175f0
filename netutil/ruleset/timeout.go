package ruleset

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AddTimeout adds a conntrack timeout object for half-open TCP connections to a table, which it creates if missing. It
// does not change an existing object. All other TCP timeouts stay; the library would overwrite them.
//
// The error is unix.ENOENT or EOPNOTSUPP if the kernel lacks CONFIG_NF_CONNTRACK_TIMEOUT.
func (s *Socket) AddTimeout(t *nftables.Table, name string, opening time.Duration) error {
	return s.Do(func(*nftables.Conn) error {
		table := netlink.NewAttributeEncoder()
		table.String(unix.NFTA_TABLE_NAME, t.Name)
		encoded, err := table.Encode()
		if err != nil {
			return err
		}
		object, err := encodeTimeout(t, name, opening)
		if err != nil {
			return err
		}
		const ask = netlink.Request | netlink.Acknowledge | netlink.Create
		return s.sendBatch(message(unix.NFT_MSG_NEWTABLE, ask, t.Family, encoded), message(unix.NFT_MSG_NEWOBJ, ask, t.Family, object))
	})
}

func encodeTimeout(t *nftables.Table, name string, opening time.Duration) ([]byte, error) {
	const synSent, synRecv, synSent2 = 1, 2, 9 // CTA_TIMEOUT_TCP_*, linux/netfilter/nfnetlink_cttimeout.h
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.String(unix.NFTA_OBJ_TABLE, t.Name)
	attrs.String(unix.NFTA_OBJ_NAME, name)
	attrs.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_CT_TIMEOUT)
	attrs.Nested(unix.NFTA_OBJ_DATA, func(object *netlink.AttributeEncoder) error {
		object.Uint8(expr.NFTA_CT_TIMEOUT_L4PROTO, unix.IPPROTO_TCP)
		object.Nested(expr.NFTA_CT_TIMEOUT_DATA, func(times *netlink.AttributeEncoder) error {
			for _, state := range []uint16{synSent, synRecv, synSent2} {
				times.Uint32(state, uint32(opening/time.Second))
			}
			return nil
		})
		return nil
	})
	return attrs.Encode()
}

// Timeout applies the object of [Socket.AddTimeout] to the packet's connection. The packet must be its first.
func Timeout(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: name}}
}
