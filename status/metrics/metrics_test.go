package metrics_test

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/election/advertisement"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/metrics"
	"github.com/herald-vip/herald/status/page"
	"github.com/herald-vip/herald/testenv/must"
)

func status() admin.Status {
	at := time.Unix(1767000000, 500e6)
	return admin.Status{
		Config: admin.Config{Loaded: at},
		VIPs: []admin.VIP{
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.99.0.10"), Stage: "announced", Decided: true}, State: "announced", Sent: []string{"10.0.1.254"}},
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("fd00::10"), Stage: "announced", Decided: true, Error: "no link"}, State: "blocked"},
		},
		Peers: []bgp.Session{{Name: "10.0.1.254", State: "established", Advertised: []netip.Prefix{netip.MustParsePrefix("10.99.0.10/32")}}},
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body := must.Get[[]byte](t)(io.ReadAll(w.Body))
	return w.Code, string(body)
}

// expect checks that the metrics of s have these lines, or beginnings of lines, and lack these texts.
func expect(t *testing.T, s admin.Status, lines, lacks []string) {
	t.Helper()
	code, body := get(t, metrics.NewHandler(func() admin.Status { return s }, nil, nil), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, body)
	}
	for _, line := range lines {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("no %q in:\n%s", line, body)
		}
	}
	for _, text := range lacks {
		if strings.Contains(body, text) {
			t.Errorf("%q in:\n%s", text, body)
		}
	}
}

// The golden file lacks these values.
func TestMetrics(t *testing.T) {
	expect(t, status(), []string{
		`herald_config_loaded_timestamp_seconds 1.7670000005e+09`,
		`herald_draining 0`,
		`herald_vip_announced{address="10.99.0.10",vip="cp"} 1`,
		`herald_vip_announced{address="fd00::10",vip="cp"} 0`,
		`herald_vip_error{address="fd00::10",vip="cp"} 1`,
		`herald_vip_peers{address="fd00::10",vip="cp"} 0`,
		`process_resident_memory_bytes`,
	}, []string{"herald_service", "herald_kube"})
}

func TestElectionMetrics(t *testing.T) {
	expect(t, admin.Status{
		Node: "m1",
		VIPs: []admin.VIP{{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp"}}},
		Election: &admin.Election{
			Fence:   admin.FenceOn,
			Members: []lease.Member{{Name: "m1", Self: true, Voter: true}, {Name: "m2", Alive: true, Voter: true}, {Name: "m3", Voter: true}, {Name: "w1", Alive: true}},
			Leases: []admin.Lease{
				{LeaseStatus: lease.LeaseStatus{Lease: "cp", Holder: "m1"}},
				{LeaseStatus: lease.LeaseStatus{Lease: "other", Holder: "m2"}}, {LeaseStatus: lease.LeaseStatus{Lease: "none"}},
			},
		},
	}, []string{
		`herald_lease_held{vip="cp"} 1`,
		`herald_lease_held{vip="other"} 0`,
		`herald_lease_holder{member="m1",vip="cp"} 1`,
		`herald_lease_holder{member="m2",vip="other"} 1`,
		`herald_election_member_alive{member="m1"} 1`,
		`herald_election_member_alive{member="m2"} 1`,
		`herald_election_member_alive{member="m3"} 0`,
		`herald_fence_on 1`,
	}, []string{`herald_lease_holder{member="",`, `{member="w1"}`, "herald_vip_peers{"})
}

func TestServiceMetrics(t *testing.T) {
	expect(t, admin.Status{Services: &admin.Services{
		Kubernetes: admin.Kubernetes{Unconnected: "x", Health: kube.Health{Troubles: make([]kube.Trouble, 2)}},
		Pools: []admin.Pool{
			{PoolStatus: announce.PoolStatus{Withdrawn: 8}},
			{PoolStatus: announce.PoolStatus{Name: "a"}, IPv4: &admin.Usage{Capacity: 254, Used: 9}},
		},
	}}, []string{
		"herald_services_synced 0", "herald_kube_troubles 3", `herald_service_addresses{pool="",stage="withdrawn"} 8`,
		`herald_pool_addresses{family="ipv4",pool="a"} 254`, `herald_pool_error{pool="a"} 0`,
	}, []string{`herald_pool_error{pool=""}`, `family="ipv6"`, "herald_service_writer"})
}

// An alert must see a VIP without a holder even if no node has campaigned for it yet.
func TestLeaseThatNobodyStoodFor(t *testing.T) {
	expect(t, admin.Status{Node: "m1", VIPs: []admin.VIP{
		{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp"}},
		{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("fd00:3::100"), Announce: "arp"}},
		{Status: speaker.Status{Name: "routed", Address: netip.MustParseAddr("10.99.0.10"), Announce: "bgp"}},
	}}, []string{`herald_lease_held{vip="cp"} 0`, `herald_lease_standing{vip="cp"} 0`, `herald_vip_conflict{address="fd00:3::100",vip="cp"} 0`},
		[]string{`herald_lease_held{vip="routed"}`})
}

func balancing() admin.Status {
	return admin.Status{
		Checks: []health.Verdict{{Name: "registry", State: health.Unhealthy, Reason: "refused"}},
		Balancers: []admin.Balancer{
			{Type: "internal", Status: balancer.Status{Name: "api", Error: "x", Backends: []balancer.BackendStatus{
				{Backend: balancer.Backend{Name: "m1", Addr: netip.MustParseAddrPort("10.0.1.1:6443"), State: "serving"}, Open: 3},
				{Backend: balancer.Backend{Name: "m2", Addr: netip.MustParseAddrPort("10.0.1.2:6443"), State: "dead"}, Open: -1},
			}}},
			{Type: "external", Status: balancer.Status{Name: "web"}},
		},
		Election: &admin.Election{Offers: []admin.Offer{
			{MemberState: advertisement.MemberState{Member: "m1", Advertisement: advertisement.Advertisement{Checks: map[string]bool{"apiserver": true, "registry": false}}}},
			{MemberState: advertisement.MemberState{Member: "m2", TimedOut: true}}, {MemberState: advertisement.MemberState{Member: "m3", Left: true}},
		}},
	}
}

func TestBalancerMetrics(t *testing.T) {
	expect(t, balancing(), []string{
		`herald_balancer_in_force{balancer="web"} 0`,
		`herald_balancer_serving{balancer="api"} 1`,
		`herald_balancer_error{balancer="web"} 0`,
		`herald_balancer_backend_up{address="10.0.1.1:6443",backend="m1",balancer="api"} 1`,
		`herald_balancer_backend_up{address="10.0.1.2:6443",backend="m2",balancer="api"} 0`,
		`herald_balancer_open_connections{address="10.0.1.1:6443",backend="m1",balancer="api"} 3`,
		`herald_offer_healthy{check="registry",member="m1"} 0`,
		`herald_offer_draining{member="m1"} 0`,
		`herald_offer_silent{member="m1"} 0`,
		`herald_offer_silent{member="m2"} 1`,
		`herald_offer_silent{member="m3"} 1`,
	}, []string{`herald_balancer_open_connections{address="10.0.1.2:6443"`})
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

func TestProbes(t *testing.T) {
	s := status()
	h := metrics.NewHandler(func() admin.Status { return s }, nil, func() *page.Nodes { return nil })
	if code, _ := get(t, h, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := get(t, h, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no link") {
		t.Errorf("/readyz with an error: %d %q", code, body)
	}
	s.VIPs = s.VIPs[:1]
	if code, _ := get(t, h, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	if code, body := get(t, h, "/"); code != http.StatusOK || !strings.Contains(body, "<h1>Herald on ") {
		t.Errorf("/: %d %q", code, body)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("something unasked for is served: %d", code)
	}
}

// A daemon listens before there is a status to tell.
func TestStatusIsNotAskedForBeforeARequest(t *testing.T) {
	metrics.NewHandler(func() admin.Status { t.Error("asked"); return admin.Status{} }, nil, nil)
}

var update = flag.Bool("update", false, "write the golden file anew")

// Users' dashboards and alerts rely on the metrics' names, labels and values. The status has every member that there is;
// a test in manifests/monitoring compares types and help with docs/monitoring.md.
func TestGolden(t *testing.T) {
	text := must.Get[[]byte](t)(os.ReadFile("../admin/testdata/status.json"))
	var s admin.Status
	must.Do(t, json.Unmarshal(text, &s))
	_, body := get(t, metrics.NewHandler(func() admin.Status { return s }, nil, nil), "/metrics")
	var lines []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "herald_") {
			lines = append(lines, line)
		}
	}
	got := strings.Join(lines, "")
	const file = "testdata/metrics.txt"
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get[[]byte](t)(os.ReadFile(file))
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update writes it anew:\n%s", diff)
	}
}
