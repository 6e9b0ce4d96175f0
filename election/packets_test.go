package election

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/wait"
)

func TestDescriptionsSpread(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start()
		c.met()
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		c.members[0].Describe([]net.HardwareAddr{mac})
		c.members[0].Campaign(lease.Candidacy{Lease: "vip"}, lease.Candidacy{Lease: "other"})
		for _, m := range c.members {
			wait.Until(t, m.name+" knows the description", func() bool {
				s := m.Status().Members
				return len(s) == 3 && s[0].Campaigns == 2 && slices.EqualFunc(m.Hardware()["m1"], []net.HardwareAddr{mac}, slices.Equal)
			})
		}
	})
}

func TestPacketsFitAnyPath(t *testing.T) {
	virtually(t, 5, nil, func(t *testing.T, f *fabric.Fabric, c *cluster) {
		longest := 0
		f.Sent = func(_, _ netip.AddrPort, b []byte) { longest = max(longest, len(b)) }
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf("vip-%d-%s", i, strings.Repeat("x", 40)))
		}
		c.start(many...)
		for i, m := range c.members {
			m.Describe(slices.Repeat([]net.HardwareAddr{{2, 0, 0, 0, 0, byte(i)}}, 49)) // three descriptions exceed a packet
		}
		c.met()
		for _, name := range many {
			c.holder(name)
		}
		time.Sleep(5 * time.Second)
		f.Lock()
		defer f.Unlock()
		if longest > minMTU-headers || longest < 600 {
			t.Fatalf("the longest packet has %d bytes, %d on the wire", longest, longest+headers)
		}
	})
}
