package election

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/testenv/nettest"
	"github.com/herald-vip/herald/testenv/wait"
)

// startAdvertising starts three masters, which advertise a check, and n workers that receive it, over sockets.
func startAdvertising(b *testing.B, m *meter, n int) (masters, workers []*member) {
	at := nettest.Loopback(3 + n)
	c := newCluster(b, m.open, at[:3], nil)
	for i, at := range at[3:] {
		c.observer(fmt.Sprintf("w%03d", i), at)
	}
	for _, joining := range c.members { // one by one, as all members share this process
		joining.apply(nil)
		wait.Until(b, "the masters know "+joining.name, func() bool {
			return !slices.ContainsFunc(c.members[:3], func(m *member) bool {
				return m.node != nil && joining.node != nil && !slices.Contains(m.allAlive(), joining.name)
			})
		})
	}
	return c.members[:3], c.members[3:]
}

// BenchmarkAdvertisements measures the traffic and CPU time of three masters and a hundred workers, without advertisements and
// with the masters'.
func BenchmarkAdvertisements(b *testing.B) {
	const n, seconds = 100, 5
	for _, advertise := range []bool{false, true} {
		b.Run(map[bool]string{false: "without", true: "with"}[advertise], func(b *testing.B) {
			m := new(meter)
			masters, workers := startAdvertising(b, m, n)
			for _, master := range masters {
				if advertise {
					master.Advertise(serves())
				}
			}
			for _, w := range workers {
				wait.Until(b, w.name+" knows the advertisements", func() bool { return !advertise || w.rotation() == "m1 m2 m3" })
			}
			<-time.After(20 * time.Second) // until the members that joined are no longer new
			for b.Loop() {
				packets, bytes, cpu := m.packets.Load(), m.bytes.Load(), spent(b)
				<-time.After(seconds * time.Second)
				b.ReportMetric(float64(m.packets.Load()-packets)/seconds, "packets/s")
				b.ReportMetric(float64(m.bytes.Load()-bytes)/seconds, "bytes/s")
				b.ReportMetric(100*(spent(b)-cpu).Seconds()/seconds, "%core")
			}
		})
	}
}

// BenchmarkAdvertisementLatency measures the time from Advertise at a master until the handler of one worker is called, and
// until all handlers are.
func BenchmarkAdvertisementLatency(b *testing.B) {
	for _, n := range []int{1, 20, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			masters, workers := startAdvertising(b, new(meter), n)
			heard := make(chan bool, n)
			masters[0].Advertise(serves())
			for _, w := range workers {
				wait.Until(b, w.name+" knows the advertisement", func() bool { return w.rotation() == "m1" })
				w.mu.Lock()
				w.onStates = func() { heard <- w.rotation() == "m1" }
				w.mu.Unlock()
			}
			var some, all []time.Duration
			for healthy := false; b.Loop(); healthy = !healthy {
				<-time.After(max(100, 6*time.Duration(n)) * time.Millisecond) // within packetRate
				began := time.Now()
				masters[0].Advertise(advertisement.Advertisement{Checks: map[string]bool{"apiserver": healthy}})
				for range workers {
					if now := nettest.Receive(b, heard); now != healthy {
						b.Fatal("a worker received another state")
					}
					some = append(some, time.Since(began))
				}
				all = append(all, time.Since(began))
			}
			for what, took := range map[string][]time.Duration{"one": some, "all": all} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median-"+what)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99-"+what)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
