package arp_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/arp"
)

// BenchmarkAnnounce measures sending all frames of one dual-stack VIP, the delay of a takeover.
func BenchmarkAnnounce(b *testing.B) {
	benchmark(b, vips)
}

func BenchmarkAnnounce1000(b *testing.B) {
	var addrs []netip.Addr
	for i, addr := 0, vips[0]; i < 1000; i, addr = i+1, addr.Next() {
		addrs = append(addrs, addr)
	}
	benchmark(b, addrs)
}

func benchmark(b *testing.B, addrs []netip.Addr) {
	l := newLAN(b)
	a := l.run()
	var watched []arp.Watched
	for _, addr := range addrs {
		watched = append(watched, arp.Watched{Link: "eth0", Addr: addr})
	}
	a.Apply(watched)
	b.ReportAllocs()
	for b.Loop() {
		must(b, a.Announce(time.Time{}, "eth0", addrs...))
	}
}
