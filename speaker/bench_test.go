package speaker_test

import (
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	election "github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/speaker"
)

// nothing fakes routers and kernel at no cost.
type nothing struct{}

func (nothing) Announce(...bgp.Route) error                     { return nil }
func (nothing) Withdraw(...netip.Prefix) error                  { return nil }
func (nothing) Bind(string, netip.Addr) error                   { return nil }
func (nothing) BindFor(string, netip.Addr, time.Duration) error { return nil }
func (nothing) Unbind(string, ...netip.Addr) error              { return nil }
func (nothing) Try(string, netip.Addr) error                    { return nil }

// The cost of decisions with a thousand VIPs: a failure with its recovery, and a reload without changes.
func BenchmarkThousand(b *testing.B) {
	var vips []speaker.VIP
	addr := v4
	for range 1000 {
		v := vip()
		v.Addresses = []netip.Addr{addr}
		vips = append(vips, v)
		addr = addr.Next()
	}
	s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), nothing{}, route.New(), nothing{}, speaker.FlatParts{}, nil, nil)
	verdicts := passing()
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

// held fakes an election. This node holds every lease.
type held struct{ until time.Time }

func (*held) Campaign(...election.Candidacy)  {}
func (*held) StepDown(...string)              {}
func (*held) Forget(...string)                {}
func (h *held) Lease(...string) speaker.Lease { return speaker.Lease{Until: h.until} }

// open fakes a fence and an announcer at no cost.
type open struct{}

func (open) Filter(...netip.Addr) error                      { return nil }
func (open) Open(time.Time, ...netip.Addr) error             { return nil }
func (open) Accept(time.Time, ...netip.Addr) error           { return nil }
func (open) Close(...netip.Addr) error                       { return nil }
func (open) Announce(time.Time, string, ...netip.Addr) error { return nil }
func (open) Withdraw(string, ...netip.Addr)                  {}
func (open) Try() error                                      { return nil }
func (open) Limit(time.Time, string, ...netip.Addr)          {}

// The cost of decisions with a thousand addresses on a flat layer 2: a renewal of all leases, which
// happens several times a second, and adding and removing one address.
func BenchmarkThousandFlat(b *testing.B) {
	var vips []speaker.VIP
	addr := v4
	for range 1001 {
		vips = append(vips, speaker.VIP{
			Name: addr.String(), Addresses: []netip.Addr{addr}, Interface: "eth0", Checks: []string{"link eth0"},
			Flat: &speaker.Flat{Priority: 100, Lifetime: 2 * time.Second, Leases: []string{addr.String()}},
		})
		addr = addr.Next()
	}
	leases := &held{until: time.Now().Add(time.Hour)}
	s := speaker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), nothing{}, route.New(), nothing{}, speaker.FlatParts{Leases: leases, Announcer: open{}, Fence: open{}}, nil, nil)
	verdicts := []health.Verdict{verdict("link eth0", health.Healthy)}
	s.Apply(vips[:1000], nil, verdicts)
	b.Run("Renew", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			leases.until = leases.until.Add(time.Millisecond)
			s.LeasesChanged()
		}
	})
	b.Run("AddAndRemove", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Apply(vips, nil, verdicts)
			s.Apply(vips[:1000], nil, verdicts)
		}
	})
}
