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
	list   *memberlist.Memberlist // set before anything is sent or received
	unsent atomic.Uint64
}

// Send sends a message to a member, once, without being told whether it arrives.
func (n *network) Send(member string, at netip.AddrPort, message []byte) error {
	err := n.list.SendToAddress(memberlist.Address{Addr: at.String(), Name: member}, message)
	if err != nil {
		n.unsent.Add(1)
	}
	return err
}

// Join asks by TCP who is there, which makes each known to the other.
func (n *network) Join(at netip.AddrPort) error {
	_, err := n.list.Join([]string{at.String()})
	return err
}
