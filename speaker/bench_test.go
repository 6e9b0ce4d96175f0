package speaker_test

import (
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// nothing is a node that costs no time.
type nothing struct{}

func (nothing) Announce(...bgp.Route) error                     { return nil }
func (nothing) Withdraw(...netip.Prefix) error                  { return nil }
func (nothing) Bind(string, netip.Addr) error                   { return nil }
func (nothing) BindFor(string, netip.Addr, time.Duration) error { return nil }
func (nothing) Unbind(string, ...netip.Addr) error              { return nil }

// What deciding costs with a thousand VIPs: a failure and the recovery from it,
// and a reload that changes nothing.
func BenchmarkThousand(b *testing.B) {
	var vips []speaker.VIP
	addr := v4
	for range 1000 {
		v := vip()
		v.Addresses = []netip.Addr{addr}
		vips = append(vips, v)
		addr = addr.Next()
	}
	s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), nothing{}, nothing{}, speaker.Segment{})
	verdicts := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
	s.Apply(vips, peers(), verdicts)
	b.Run("FailAndRecover", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Observe(verdict("apiserver", health.Unhealthy))
			s.Observe(verdict("apiserver", health.Healthy))
		}
	})
	b.Run("Reload", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Apply(vips, peers(), verdicts)
		}
	})
}
