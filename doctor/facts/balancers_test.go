package facts

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/netns"
)

// told converts the balancers of a running Herald.
func TestTold(t *testing.T) {
	if got := told(admin.Balancer{Status: balancer.Status{Name: "kubernetes", Error: "no nftables"}, Type: "internal"}); got.Err == nil || got.Err.Error() != "no nftables" {
		t.Errorf("a balancer in trouble: %+v", got)
	}
	m1, m2 := netip.MustParseAddrPort("10.0.1.1:6443"), netip.MustParseAddrPort("10.0.1.2:6443")
	got := told(admin.Balancer{Type: "internal", Status: balancer.Status{Name: "kubernetes", Backends: []balancer.BackendStatus{
		{Backend: balancer.Backend{Name: "m1", Addr: m1, State: "serving", Reason: "it says so"}},
		{Backend: balancer.Backend{Name: "m2", Addr: m2, State: "draining", Reason: "it says so"}},
	}}})
	want := Backends{Backends: []Backend{
		{Name: "m1", Address: m1, Serves: true, Reason: "serving: it says so"},
		{Name: "m2", Address: m2, Reason: "draining: it says so"},
	}}
	if diff := cmp.Diff(want, got, compare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Filters are read only if the kernel forwards connections.
func TestLookAtFilters(t *testing.T) {
	ns, _ := netns.New(t)
	err := netns.In(ns, func() error {
		rules := "add table inet firewall; add chain inet firewall forward { type filter hook forward priority 0; policy drop; }"
		if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		want := []ruleset.ChainID{{Family: "inet", Table: "firewall", Name: "forward"}}
		for _, bridge := range []bool{true, false} {
			c := parsed(t, flatFile)
			*c.VIPs[0].Bridge = bridge
			f := &Facts{}
			f.lookAtFilters(c)
			if !bridge {
				want = nil
			}
			if diff := cmp.Diff(want, f.ForwardDrops); diff != "" {
				t.Errorf("bridge %t (-want +got):\n%s", bridge, diff)
			}
		}
		return nil
	})
	must.Do(t, err)
}
