package election

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/transport"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/nettest"
)

// meter counts the packets sent, and their bytes with IPv4 headers.
type meter struct{ packets, bytes atomic.Int64 }

// open is a Listener.
func (m *meter) open(at netip.AddrPort, a *transport.Admission) (memberlist.Transport, error) {
	t, err := transport.Listen(at, a)
	return &metered{t, m}, err
}

type metered struct {
	memberlist.Transport
	*meter
}

func (m *metered) WriteTo(b []byte, dst string) (time.Time, error) {
	m.packets.Add(1)
	m.bytes.Add(int64(len(b)) + 28)
	return m.Transport.WriteTo(b, dst)
}

// spent returns the CPU time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLeases measures the load per second of one of five nodes with three voters. The leases of 600 ms are
// spread over all nodes, and each has three candidates.
func BenchmarkLeases(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := new(meter)
			at := nettest.Loopback(5)
			c := newCluster(b, m.open, at[:3], nil)
			c.observer("w1", at[3])
			c.observer("w2", at[4])
			c.start()
			c.met()
			var all [5][]lease.Candidacy
			for i := range n {
				for k := range 3 {
					node := (i + k) % 5
					all[node] = append(all[node], lease.Candidacy{Lease: fmt.Sprint("vip-", i), Priority: 3 - k})
				}
			}
			for i, node := range c.members {
				node.Campaign(all[i]...)
			}
			for i := range n {
				c.holder(fmt.Sprint("vip-", i))
			}
			const seconds = 3
			for b.Loop() {
				packets, bytes, cpu := m.packets.Load(), m.bytes.Load(), spent(b)
				<-time.After(seconds * time.Second)
				b.ReportMetric(float64(m.packets.Load()-packets)/5/seconds, "packets/s")
				b.ReportMetric(float64(m.bytes.Load()-bytes)/5/seconds, "bytes/s")
				b.ReportMetric(100*(spent(b)-cpu).Seconds()/5/seconds, "%core")
			}
			var held []int
			for _, node := range c.members {
				node.mu.Lock()
				held = append(held, len(node.held))
				node.mu.Unlock()
			}
			b.Log("held", held, "of", n)
		})
	}
}
