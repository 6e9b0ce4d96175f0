package ruleset

import (
	"encoding/binary"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// AddTimeout adds to a table, which it makes if there is none, an object by which conntrack forgets TCP
// connections that are not open after a time. It does not change an object that is there, nor other
// times of TCP, which the library would overwrite.
//
// The error is unix.ENOENT or EOPNOTSUPP if the kernel lacks CONFIG_NF_CONNTRACK_TIMEOUT.
func (s *Socket) AddTimeout(to *nftables.Table, name string, opening time.Duration) error {
	return s.Do(func(*nftables.Conn) error {
		table := netlink.NewAttributeEncoder()
		table.String(unix.NFTA_TABLE_NAME, to.Name)
		encoded, err := table.Encode()
		if err != nil {
			return err
		}
		object, err := encodeTimeout(to, name, opening)
		if err != nil {
			return err
		}
		const ask = netlink.Request | netlink.Acknowledge | netlink.Create
		return s.sendBatch(message(unix.NFT_MSG_NEWTABLE, ask, to.Family, encoded), message(unix.NFT_MSG_NEWOBJ, ask, to.Family, object))
	})
}

func encodeTimeout(of *nftables.Table, name string, opening time.Duration) ([]byte, error) {
	const synSent, synRecv, synSent2 = 1, 2, 9 // CTA_TIMEOUT_TCP_*, linux/netfilter/nfnetlink_cttimeout.h
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	attrs.String(unix.NFTA_OBJ_TABLE, of.Name)
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

// Timeout gives the connection of a packet, which is its first, the times of [Socket.AddTimeout].
func Timeout(name string) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: name}}
}
