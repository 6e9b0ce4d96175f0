package election

import (
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/members"
	"github.com/herald-vip/herald/election/transport"
)

// network reaches other members through memberlist.
type network struct {
	*transport.LogFilter
	list *memberlist.Memberlist // set before any message
}

// Send sends a message to a member once, without confirmation.
func (n *network) Send(member string, at netip.AddrPort, message []byte) error {
	return n.list.SendToAddress(memberlist.Address{Addr: at.String(), Name: member}, message)
}

// Join exchanges member lists over TCP, so that both sides know each other.
func (n *network) Join(at netip.AddrPort) error {
	_, err := n.list.Join([]string{at.String()})
	return err
}

const (
	// minMTU is the minimum MTU of IPv6 links in bytes (RFC 8200 section 5). headers is the size of the IPv6 and UDP
	// headers.
	minMTU  = 1280
	headers = 40 + 8
	// checksum is the size that memberlist adds to a packet without counting it.
	checksum = 5
)

// settings configures memberlist for a few members at one site. It wakes rarely, because each wake-up costs more than
// its work, and its packets fit any path.
//
// No failover waits for memberlist's failure detector (SWIM): a failover waits for the end of a lease, and lease
// messages, several per lease, show which members are alive. The detector only finds members to rejoin.
func settings(c *Config, ring *memberlist.Keyring, m *members.Members) *memberlist.Config {
	s := memberlist.DefaultLANConfig()
	s.Name = c.Self
	s.BindPort = int(c.home().Port())
	s.Keyring = ring
	s.DelegateProtocolMax = members.AdvertisementProtocol
	s.Delegate, s.Events, s.Alive, s.Merge = m, m, m, m

	s.ProbeInterval = 2 * time.Second
	s.ProbeTimeout = 500 * time.Millisecond
	s.AwarenessMaxMultiplier = 1 // intervals: no one waits for the last probe
	s.SuspicionMult = 2          // intervals: so few members cannot confirm a suspicion (SWIM section 4.2)
	s.DisableTcpPings = true
	s.GossipInterval = 250 * time.Millisecond // half of leaveTimeout
	s.GossipNodes = 6                         // per interval
	s.GossipToTheDeadTime = 10 * time.Second
	s.PushPullInterval = 10 * time.Second
	s.TCPTimeout = time.Second
	s.DeadNodeReclaimTime = time.Second // a member may return at another address

	s.HandoffQueueDepth = 4096 // messages, for bursts about thousands of leases
	s.UDPBufferSize = minMTU - headers - checksum
	s.EnableCompression = false // costs more than it saves on small messages
	return s
}
