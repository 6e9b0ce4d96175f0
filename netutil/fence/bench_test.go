package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What it costs to renew addresses, which happens several times a second.
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
				h.Must(f.Guard(addrs...))
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

// What it costs to gate one address more, and one less, beside so many.
func BenchmarkGuard(b *testing.B) {
	for _, n := range []int{10, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := newHost(b)
			f := h.fence()
			addrs := make([]netip.Addr, n+1)
			for i, addr := 0, vip[0].Addr(); i <= n; i, addr = i+1, addr.Next() {
				addrs[i] = addr
			}
			h.Must(f.Guard(addrs[:n]...))
			for b.Loop() {
				h.Must(f.Guard(addrs...))
				h.Must(f.Guard(addrs[:n]...))
			}
		})
	}
}
