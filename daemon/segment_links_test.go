package daemon

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/herald-vip/herald/arp"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/health"
)

// A node whose onConflict becomes yield has a verdict on the address at once: that nobody
// else used it was known before, and is not found out a second time.
func TestYieldFromNowOn(t *testing.T) {
	told := make(map[string]health.State)
	g := &segment{
		log: slog.New(slog.DiscardHandler), verdicts: make(map[string]health.Verdict), acquainted: true,
		told: func(v health.Verdict) { told[v.Check] = v.State },
	}
	g.announcer = arp.New(g.log, arp.Options{Observe: g.found})
	vip := config.VIP{Name: "flat", Interface: "nolink0", Announce: config.AnnounceARP,
		Addresses: []netip.Addr{netip.MustParseAddr("10.4.0.10")}}
	check := addressCheck(flatVIP{addr: vip.Addresses[0]})
	for _, policy := range []config.OnConflict{config.Defend, config.Yield} {
		vip.OnConflict = policy
		g.watch(&config.Config{Election: &config.Election{}, VIPs: []config.VIP{vip}})
		if state, ok := told[check]; ok != (policy == config.Yield) || ok && state != health.Healthy {
			t.Errorf("onConflict %s: a verdict was told: %v, %v", policy, ok, state)
		}
	}
}
