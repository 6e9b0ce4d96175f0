package metrics_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/metrics"
)

func balancing() admin.Status {
	return admin.Status{
		VIPs:   []admin.VIP{{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.99.0.10")}, Bridge: "forwards new connections to m2", BridgedTo: []string{"m2"}}},
		Checks: []health.Verdict{{Name: "registry", State: health.Unhealthy, Reason: "refused"}},
		Balancers: []admin.Balancer{
			{Type: "internal", Status: balancer.Status{Name: "api", Error: "x", Backends: []balancer.BackendStatus{
				{Backend: balancer.Backend{Name: "m1", Addr: netip.MustParseAddrPort("10.0.1.1:6443"), State: "serving"}, Connections: 7, Open: 3},
				{Backend: balancer.Backend{Name: "m2", Addr: netip.MustParseAddrPort("10.0.1.2:6443"), State: "dead"}, Connections: 5, Open: -1},
			}}},
			{Type: "external", Status: balancer.Status{Name: "web"}},
		},
		Election: &admin.Election{Offers: []admin.Offer{
			{MemberState: advertisement.MemberState{Member: "m1", Advertisement: advertisement.Advertisement{Draining: true, Checks: map[string]bool{"apiserver": true, "registry": false}}}},
			{MemberState: advertisement.MemberState{Member: "m2", TimedOut: true}}, {MemberState: advertisement.MemberState{Member: "m3", Left: true}},
		}},
	}
}

func TestBalancerMetrics(t *testing.T) {
	_, body := get(t, metrics.NewHandler(balancing, nil, nil), "/metrics")
	for _, want := range []string{
		`herald_balancer_in_force{balancer="api"} 1`,
		`herald_balancer_in_force{balancer="web"} 0`,
		`herald_balancer_serving{balancer="api"} 1`,
		`herald_balancer_serving{balancer="web"} 0`,
		`herald_balancer_error{balancer="api"} 1`,
		`herald_balancer_error{balancer="web"} 0`,
		`herald_balancer_backend_up{address="10.0.1.1:6443",backend="m1",balancer="api"} 1`,
		`herald_balancer_backend_up{address="10.0.1.2:6443",backend="m2",balancer="api"} 0`,
		`herald_balancer_backend_state{address="10.0.1.1:6443",backend="m1",balancer="api",state="serving"} 1`,
		`herald_balancer_connections_total{address="10.0.1.1:6443",backend="m1",balancer="api"} 7`,
		`herald_balancer_open_connections{address="10.0.1.1:6443",backend="m1",balancer="api"} 3`,
		`herald_offer_healthy{check="apiserver",member="m1"} 1`,
		`herald_offer_healthy{check="registry",member="m1"} 0`,
		`herald_offer_draining{member="m1"} 1`,
		`herald_offer_silent{member="m1"} 0`,
		`herald_offer_silent{member="m2"} 1`,
		`herald_offer_silent{member="m3"} 1`,
		`herald_vip_bridged{address="10.99.0.10",vip="cp"} 1`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, `herald_balancer_open_connections{address="10.0.1.2:6443"`) {
		t.Error("open connections that are not known")
	}
}

// A load balancer of the user's own asks by name.
func TestHealthOfOne(t *testing.T) {
	h := metrics.NewHandler(balancing, balancing().Healthy, nil)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/healthz/api":      {http.StatusOK, "1 of 2 backends serve\n"},
		"/healthz/registry": {http.StatusServiceUnavailable, "registry unhealthy: refused\n"},
		"/healthz/nobody":   {http.StatusNotFound, "no VIP, balancer or check has the name \"nobody\"\n"},
		"/healthz":          {http.StatusOK, "ok\n"},
	} {
		if code, body := get(t, h, path); code != want.code || body != want.body {
			t.Errorf("%s: %d %q, want %d %q", path, code, body, want.code, want.body)
		}
	}
}
