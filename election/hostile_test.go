package election

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/fabric"
)

// FuzzPackets sends packets from a member's address to an election without encryption. Memberlist parses all of them,
// and a panic there ends the process.
func FuzzPackets(f *testing.F) {
	network := fabric.New()
	open := func(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error) {
		a.Open = true // as with a key, so that observers may join
		return network.Open(at, a)
	}
	c := newCluster(f, open, sites(2), func(config *Config) { config.Keys, config.Insecure = nil, true })
	c.members = c.members[:1]
	c.start("vip")
	dst := network.Ports[c.members[0].home]
	from := net.UDPAddrFromAddrPort(sites(2)[1])
	for kind := range byte(15) {
		f.Add([]byte{kind, 0x81, 0xa5, 'S', 'e', 'q', 'N', 'o', 1})
	}
	f.Add([]byte{7, 2, 0, 2, 0, 2, 8, 1, 8, 2})
	f.Add([]byte{244, 1, 'x'})
	f.Fuzz(func(_ *testing.T, b []byte) {
		dst.Packets <- &memberlist.Packet{Buf: b, From: from, Timestamp: time.Now()}
		for len(dst.Packets) > 0 {
			runtime.Gosched()
		}
	})
}
