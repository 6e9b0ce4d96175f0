package election

import (
	"net/netip"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/transport"
)

// network reaches other members through memberlist.
type network struct {
	*transport.LogFilter
	list   *memberlist.Memberlist // set before any message
	unsent atomic.Uint64
}

// Send sends a message to a member once, without confirmation.
func (n *network) Send(member string, at netip.AddrPort, message []byte) error {
	err := n.list.SendToAddress(memberlist.Address{Addr: at.String(), Name: member}, message)
	if err != nil {
		n.unsent.Add(1)
	}
	return err
}

// Join exchanges member lists over TCP, so that both sides know each other.
func (n *network) Join(at netip.AddrPort) error {
	_, err := n.list.Join([]string{at.String()})
	return err
}
