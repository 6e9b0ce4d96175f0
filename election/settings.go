package election

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/members"
)

const (
	// minMTU is what every link that carries IPv6 passes in one piece, in bytes
	// (RFC 8200 section 5), and headers what IPv6 and UDP take of it.
	minMTU  = 1280
	headers = 40 + 8
	// checksum is what memberlist adds to a packet without counting it.
	checksum = 5
)

// settings are memberlist's for a few members in one place: it does little, as
// each time that it wakes costs more than what it then does, and what is sent fits
// any path.
//
// Nothing waits for the failure detector: a failover waits for the end of a lease,
// and who is alive is told by the lease messages, several in each lease. It finds
// who is to be asked to join again.
func settings(c *Config, ring *memberlist.Keyring, m *members.Members) *memberlist.Config {
	s := memberlist.DefaultLANConfig()
	s.Name = c.Self
	s.BindPort = int(c.home().Port())
	s.Keyring = ring
	s.DelegateProtocolMax = members.AdvertisementProtocol
	s.Delegate, s.Events, s.Alive, s.Merge = m, m, m, m

	s.ProbeInterval = 2 * time.Second
	s.ProbeTimeout = 500 * time.Millisecond
	s.AwarenessMaxMultiplier = 1 // intervals: a last probe, which nobody waits for, takes no longer
	s.SuspicionMult = 2          // intervals, since so few members cannot confirm each other's suspicion
	s.DisableTcpPings = true
	s.GossipInterval = 250 * time.Millisecond // half of what a farewell may take
	s.GossipNodes = 6                         // at a time, as that is seldom
	s.GossipToTheDeadTime = 10 * time.Second
	s.PushPullInterval = 10 * time.Second
	s.TCPTimeout = time.Second
	s.DeadNodeReclaimTime = time.Second // a member may come back at another address

	s.HandoffQueueDepth = 4096 // messages, for bursts about thousands of leases
	s.UDPBufferSize = minMTU - headers - checksum
	s.EnableCompression = false // of so little, it costs more than it saves
	return s
}

// newIncarnation tells this run of the process from all others, and usually a
// later one from an earlier: by the time of day to some microseconds, and chance.
func newIncarnation(now time.Time) uint64 {
	return uint64(now.UnixNano())&^0xffff | rand.Uint64()&0xffff
}
