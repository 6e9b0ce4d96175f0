package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// BenchmarkOpen measures a renewal, which happens several times a second.
func BenchmarkOpen(b *testing.B) {
	for _, first := range []netip.Addr{vip[0].Addr(), vip[1].Addr()} {
		for _, n := range []int{1, 10, 100, 1000} {
			family := "IPv4"
			if first.Is6() {
				family = "IPv6"
			}
			b.Run(fmt.Sprintf("%s/%d", family, n), func(b *testing.B) {
				h := newHost(b)
				f := h.fence()
				addrs := make([]netip.Addr, n)
				for i, addr := 0, first; i < n; i, addr = i+1, addr.Next() {
					addrs[i] = addr
				}
				h.Must(f.Filter(addrs...))
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					if err := f.Open(start.Add(time.Second), addrs...); err != nil && !errors.Is(err, ErrLate) {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
				b.ReportMetric(float64(f.status().Late), "late")
			})
		}
	}
}

// BenchmarkFilter measures adding and removing one filtered address beside n others.
func BenchmarkFilter(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := newHost(b)
			f := h.fence()
			addrs := make([]netip.Addr, n+1)
			for i, addr := 0, vip[0].Addr(); i <= n; i, addr = i+1, addr.Next() {
				addrs[i] = addr
			}
			h.Must(f.Filter(addrs[:n]...))
			for b.Loop() {
				h.Must(f.Filter(addrs...))
				h.Must(f.Filter(addrs[:n]...))
			}
		})
	}
}
