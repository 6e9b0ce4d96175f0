package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/balancer"
)

// BenchmarkPlan measures the plan for a backend's death, without the kernel's work, with ten balancers.
func BenchmarkPlan(b *testing.B) {
	var services [2][]balancer.Service
	for i := range 10 {
		for dead := range 2 {
			s := balancer.Service{Name: fmt.Sprint("s", i), Listen: []netip.AddrPort{netip.AddrPortFrom(local.Addr(), uint16(9000+i))}}
			for m := range 3 {
				state := balancer.Serving
				if m < dead {
					state = balancer.Dead
				}
				s.Backends = append(s.Backends, balancer.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(m)}), 6443), State: state})
			}
			services[dead] = append(services[dead], s)
		}
	}
	var have table
	for i := 0; b.Loop(); i++ {
		w := wanted{services: services[i%2], outlive: time.Minute, taken: balancer.Places(services[0])}
		w.buckets = assign(have, w.services, "node")
		want := w.table()
		change(have, want)
		have = want
	}
}
