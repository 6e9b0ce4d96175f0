package daemon

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/eventlog"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil"
	"github.com/herald-vip/herald/speaker"
)

// countingPlane counts how often it is asked to count.
type countingPlane struct {
	fakePlane
	counted atomic.Int32
}

func (p *countingPlane) Counts() ([]balancer.Count, error) {
	p.counted.Add(1)
	return p.fakePlane.Counts()
}

// idle is a daemon that has c in force and touches nothing of the host.
func idle(tb testing.TB, c *config.Config, plane balancer.Plane, observe func(health.Verdict)) *Daemon {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	addresses, err := netutil.NewAddresses(log, netutil.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	d := &Daemon{log: log, config: c, events: eventlog.New(rememberedEvents), addresses: addresses, bgp: bgp.New(log, bgp.Options{})}
	d.segment = &segment{log: log, node: c.NodeName, announcer: arp.New(log, arp.Options{})}
	d.segment.election = election.New(log, d.segment)
	d.balancers = &balancers{log: log, set: balancer.New(log, plane, &fakePlane{})}
	d.bridge = newBridge(log, crossover{newLazyPlane(log, c.NodeName)})
	d.speaker = speaker.New(log, d.bgp, addresses, d.segment.parts(), nil)
	d.offering = &offering{offer: func(election.Offer) {}, verdicts: func() []health.Verdict { return nil }}
	d.monitor = health.NewMonitor(log, observe)
	tb.Cleanup(func() {
		d.monitor.Close()
		d.balancers.close()
		d.closeBGP("over")
	})
	if err := d.balancers.apply(c); err != nil {
		tb.Fatal(err)
	}
	if d.vips, err = speakerVIPs(c); err != nil {
		tb.Fatal(err)
	}
	d.applyVIPs()
	return d
}

// A question about one name is answered as the whole status would, and does without what takes long
// to find out.
func TestHealthyIsThatOfTheStatus(t *testing.T) {
	c, plane := parseBalancing(t, "127.0.0.1:6443", "127.0.0.1:1"), &countingPlane{}
	spoken := make(chan health.Verdict, 1)
	d := idle(t, c, plane, func(v health.Verdict) {
		select {
		case spoken <- v:
		default:
		}
	})
	if err := d.monitor.Apply(healthChecks(c)); err != nil {
		t.Fatal(err)
	}
	if v := <-spoken; v.State != health.Unhealthy {
		t.Fatalf("the check of a port that is closed says %+v", v)
	}
	for _, drain := range []bool{false, true} {
		if drain {
			if err := d.Drain(t.Context(), "upgrade"); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"cp", "apiserver", "api", "registry", "files", "mirror", "nothing"} {
			before := plane.counted.Load()
			known, healthy, why := d.Healthy(name)
			if n := plane.counted.Load() - before; n != 0 {
				t.Errorf("%s: connections were counted %d times", name, n)
			}
			wantKnown, wantHealthy, wantWhy := d.Status().Healthy(name)
			if known != wantKnown || healthy != wantHealthy || why != wantWhy {
				t.Errorf("%s: %t %t %q, want %t %t %q", name, known, healthy, why, wantKnown, wantHealthy, wantWhy)
			}
		}
		d.balancers.know([]election.Offered{offer("m2", "10.0.1.2:7946", "registry")})
	}
	if plane.counted.Load() == 0 {
		t.Error("the status does not count")
	}
}

// BenchmarkHealthy is a question of a load balancer's, beside making the status, both without the kernel's
// part in it.
func BenchmarkHealthy(b *testing.B) {
	c, err := config.Parse("herald.yaml", []byte(balancing))
	if err != nil {
		b.Fatal(err)
	}
	d := idle(b, c, &fakePlane{}, func(health.Verdict) {})
	for name, ask := range map[string]func(string) (bool, bool, string){
		"narrow": d.Healthy,
		"status": func(name string) (bool, bool, string) { return d.Status().Healthy(name) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				ask("registry")
			}
		})
	}
}
