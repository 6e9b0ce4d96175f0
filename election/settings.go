package election

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/members"
)

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

// newIncarnation returns a number that is unique to this run of the process and usually greater than earlier ones: the
// time of day and 16 random bits.
func newIncarnation(now time.Time) uint64 {
	return uint64(now.UnixNano())&^0xffff | rand.Uint64()&0xffff
}
