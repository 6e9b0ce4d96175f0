package daemon

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/balancer/nft"
	"github.com/herald-vip/herald/balancer/secondchance"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/daemon/advertise"
	"github.com/herald-vip/herald/daemon/balance"
	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/address"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/netutil/route"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/eventlog"
	"github.com/herald-vip/herald/testenv/must"
)

// balancing has balancers of each kind of backends.
const balancing = `apiVersion: herald.dev/v1alpha1
kind: Speaker
nodeName: m1
vips:
- {name: cp, addresses: [10.99.0.10, "fd00:99::10"], announce: arp, checks: [apiserver]}
checks:
- {name: apiserver, tcp: {address: "127.0.0.1:1"}}
election:
  members: {m1: "10.0.1.1:7946", m2: "10.0.1.2:7946"}
  keyFile: /etc/herald/gossip.key
balancers:
- {name: api, listen: [{vip: cp, port: 9443}], backends: {members: {port: 6443, checks: [apiserver, ready]}}}
- {name: registry, listen: [{address: "127.0.0.1:5000"}], backends: {members: {port: 5001, checks: [registry]}}}
- {name: files, listen: [{address: "10.0.1.1:80"}], backends: {static: {addresses: ["10.0.2.1:80", "10.0.2.2:80"]}}}
- {name: mirror, listen: [{address: "127.0.0.1:443"}], backends: {dns: {name: mirror.example.org, port: 443}}, mode: proxy}
`

func parseBalancing(tb testing.TB) *config.Config {
	tb.Helper()
	return must.Get[*config.Config](tb)(config.Parse("herald.yaml", []byte(balancing)))
}

// countingPlane counts how often it is asked to count.
type countingPlane struct{ counted atomic.Int32 }

func (p *countingPlane) Counts() ([]balancer.Count, error) {
	p.counted.Add(1)
	return nil, nil
}

func (p *countingPlane) Apply([]balancer.Service) error { return nil }
func (p *countingPlane) Close() error                   { return nil }

// idle is a daemon that has c in force and touches nothing of the host.
func idle(tb testing.TB, c *config.Config, plane balancer.DataPlane, observe func(health.Verdict)) *Daemon {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	addresses := must.Get[*address.Binder](tb)(address.New(log, address.Options{}))
	d := &Daemon{log: log, config: c, events: eventlog.New(rememberedEvents), addresses: addresses, newConns: newconns.New(log, 0), bgp: bgp.New(log, bgp.Options{})}
	d.peering = peering.New(log, d.bgp, peering.Options{})
	d.balancers = balance.New(log, plane, &countingPlane{}, nft.New(log, nft.Options{}).Bridge(), secondchance.New(log, func(bool) {}))
	d.flat, d.speaker = flat.New(flat.Options{Log: log, Node: c.NodeName}, func(parts speaker.FlatParts, _ *election.Election) *speaker.Speaker {
		return speaker.New(log, d.bgp, route.New(), addresses, parts, nil, nil)
	})
	d.advertiser = advertise.New(d.flat.Election(), func() []health.Verdict { return nil })
	d.monitor = health.NewMonitor(log, observe)
	tb.Cleanup(func() {
		d.monitor.Close()
		d.balancers.Close()
		d.closeBGP("over")
	})
	must.Do(tb, d.balancers.SetBalancers(c))
	d.flat.Apply(flatConfig(c, vipsOf(c)))
	d.applyVIPs()
	return d
}

// A question about one name is answered as the whole status would, and does without what takes long
// to find out.
func TestHealthyIsThatOfTheStatus(t *testing.T) {
	c, plane := parseBalancing(t), &countingPlane{}
	spoken := make(chan health.Verdict, 1)
	d := idle(t, c, plane, func(v health.Verdict) {
		select {
		case spoken <- v:
		default:
		}
	})
	must.Do(t, d.monitor.Apply(c.Checks))
	if v := <-spoken; v.State != health.Unhealthy {
		t.Fatalf("the check of a port that is closed says %+v", v)
	}
	for _, drain := range []bool{false, true} {
		if drain {
			must.Do(t, d.Drain(t.Context(), "upgrade", false, 0))
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
		d.balancers.SetMemberStates([]election.MemberState{{
			Member: "m2", Address: netip.MustParseAddrPort("10.0.1.2:7946"), Advertisement: election.Advertisement{Checks: map[string]bool{"registry": true}},
		}})
	}
	if plane.counted.Load() == 0 {
		t.Error("the status does not count")
	}
}

// BenchmarkHealthy is a question of a load balancer's, beside making the status, both without the kernel's
// part in it.
func BenchmarkHealthy(b *testing.B) {
	d := idle(b, parseBalancing(b), &countingPlane{}, func(health.Verdict) {})
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
