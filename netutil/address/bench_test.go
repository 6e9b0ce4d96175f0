package address_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/netutil/address"

	"github.com/herald-vip/herald/testenv/nettest"
)

// BenchmarkThousand measures binding, unbinding and refreshing a thousand VIPs. A refresh happens every 3.3 s.
func BenchmarkThousand(b *testing.B) {
	for _, family := range []struct {
		name  string
		first netip.Addr
	}{{"IPv4", netip.MustParseAddr("10.99.0.1")}, {"IPv6", netip.MustParseAddr("fd00:99::1")}} {
		all := make([]netip.Addr, 1000)
		for i, addr := 0, family.first; i < len(all); i, addr = i+1, addr.Next() {
			all[i] = addr
		}
		bind := func(h *nettest.Host, a *address.Binder) {
			for _, addr := range all {
				h.Must(a.Bind("lo", addr))
			}
		}
		b.Run("BindAndUnbind/"+family.name, func(b *testing.B) {
			h := nettest.NewHost(b)
			a, _ := start(h, address.Options{})
			eventuallyListening(h, a)
			var unbinding time.Duration
			for b.Loop() {
				bind(h, a)
				began := time.Now()
				h.Must(a.Unbind("lo", all...))
				unbinding += time.Since(began)
			}
			b.ReportMetric(float64(unbinding.Microseconds())/float64(b.N), "unbind-µs/op")
		})
		b.Run("Refresh/"+family.name, func(b *testing.B) {
			h := nettest.NewHost(b)
			a, _ := start(h, address.Options{Lifetime: time.Minute})
			eventuallyListening(h, a)
			bind(h, a)
			begin := cpu()
			for b.Loop() {
				address.RefreshAll(a)
			}
			b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
