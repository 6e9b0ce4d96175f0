package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/bgp"
	"github.com/herald-vip/herald/bgp/bfd"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/internal/seconds"
	"github.com/herald-vip/herald/netutil/newconns"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/status/admin"
	"github.com/herald-vip/herald/status/metrics"
	"github.com/herald-vip/herald/status/page"
	"github.com/herald-vip/herald/testenv/must"
)

func status() admin.Status {
	at := time.Unix(1767000000, 500e6)
	return admin.Status{
		Version: "v1", Config: admin.Config{Generation: 3, Loaded: at, Error: "bad"},
		VIPs: []admin.VIP{
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.99.0.10"), Stage: "announced", Decided: true, Since: at, LastWithdrawal: &speaker.Withdrawal{At: at, Took: seconds.Duration(4 * time.Millisecond)}}, State: "announced", Sent: []string{"10.0.1.254"}, Restored: 2, Arrivals: &newconns.Count{Arrived: 12}},
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("fd00::10"), Stage: "announced", Decided: true, Error: "no link"}, State: "blocked"},
		},
		Checks: []health.Verdict{{Name: "apiserver", State: health.Unhealthy, Warning: "expires", Latency: seconds.Duration(250 * time.Millisecond), Passes: 7, Failures: 2}},
		Peers: []bgp.Session{{Name: "10.0.1.254", ASN: 64500, State: "established", Drops: 1,
			Advertised: []netip.Prefix{netip.MustParsePrefix("10.99.0.10/32"), netip.MustParsePrefix("10.99.0.11/32")},
			BFD:        &bfd.Status{State: bfd.Up, Since: at, DetectionTime: seconds.Duration(150 * time.Millisecond), Downs: 4, In: 10, Out: 11, Discarded: 1}}},
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body := must.Get[[]byte](t)(io.ReadAll(w.Body))
	return w.Code, string(body)
}

func TestMetrics(t *testing.T) {
	code, body := get(t, metrics.NewHandler(status, nil, nil), "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, body)
	}
	for _, want := range []string{
		`herald_build_info{version="v1"} 1`,
		`herald_config_generation 3`,
		`herald_config_error 1`,
		`herald_config_loaded_timestamp_seconds 1.7670000005e+09`,
		`herald_draining 0`,
		`herald_vip_announced{address="10.99.0.10",vip="cp"} 1`,
		`herald_vip_announced{address="fd00::10",vip="cp"} 0`,
		`herald_vip_error{address="fd00::10",vip="cp"} 1`,
		`herald_vip_peers{address="10.99.0.10",vip="cp"} 1`,
		`herald_vip_peers{address="fd00::10",vip="cp"} 0`,
		`herald_vip_stage{address="10.99.0.10",stage="announced",vip="cp"} 1`,
		`herald_vip_restored_total{address="10.99.0.10",vip="cp"} 2`,
		`herald_vip_arrivals_total{address="10.99.0.10",vip="cp"} 12`,
		`herald_vip_last_withdrawal_seconds{address="10.99.0.10",vip="cp"} 0.004`,
		`herald_check_healthy{check="apiserver"} 0`,
		`herald_check_warning{check="apiserver"} 1`,
		`herald_check_latency_seconds{check="apiserver"} 0.25`,
		`herald_check_probes_total{check="apiserver",result="fail"} 2`,
		`herald_bgp_session_up{asn="64500",peer="10.0.1.254"} 1`,
		`herald_bgp_session_drops_total{asn="64500",peer="10.0.1.254"} 1`,
		`herald_bgp_routes_advertised{asn="64500",peer="10.0.1.254"} 2`,
		`herald_bfd_session_up{peer="10.0.1.254"} 1`,
		`herald_bfd_session_downs_total{peer="10.0.1.254"} 4`,
		`herald_bfd_detection_time_seconds{peer="10.0.1.254"} 0.15`,
		`herald_bfd_packets_total{direction="discarded",peer="10.0.1.254"} 1`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
}

func TestElectionMetrics(t *testing.T) {
	_, body := get(t, metrics.NewHandler(func() admin.Status {
		return admin.Status{
			Node: "m1",
			VIPs: []admin.VIP{{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp"}, Conflict: "02:00:00:00:00:09", Conflicts: 3, Rival: "02:00:00:00:00:08"}},
			Election: &admin.Election{
				Fence: admin.FenceOn, Problem: "differs", Change: "waits for m3", Strangers: 5, Undecipherable: 6, Ignored: 7,
				Members: []admin.Member{{Name: "m1", Self: true, Voter: true}, {Name: "m2", Alive: true, Voter: true}, {Name: "m3", Voter: true}, {Name: "w1", Alive: true}},
				Leases: []admin.Lease{
					{LeaseStatus: lease.LeaseStatus{Lease: "cp", Holder: "m1", Epoch: 9, Campaigning: true}},
					{LeaseStatus: lease.LeaseStatus{Lease: "other", Holder: "m2"}}, {LeaseStatus: lease.LeaseStatus{Lease: "none"}},
				},
			},
		}
	}, nil, nil), "/metrics")
	for _, want := range []string{
		`herald_vip_conflict{address="10.3.0.100",vip="cp"} 1`,
		`herald_vip_rival{address="10.3.0.100",vip="cp"} 1`,
		`herald_vip_conflicts_total{address="10.3.0.100",vip="cp"} 3`,
		`herald_lease_held{vip="cp"} 1`,
		`herald_lease_held{vip="other"} 0`,
		`herald_lease_holder{member="m1",vip="cp"} 1`,
		`herald_lease_holder{member="m2",vip="other"} 1`,
		`herald_lease_epoch{vip="cp"} 9`,
		`herald_lease_standing{vip="cp"} 1`,
		`herald_election_problem 1`,
		`herald_election_changing 1`,
		`herald_election_member_alive{member="m1"} 1`,
		`herald_election_member_alive{member="m2"} 1`,
		`herald_election_member_alive{member="m3"} 0`,
		`herald_election_packets_total{kind="stranger"} 5`,
		`herald_election_packets_total{kind="undecipherable"} 6`,
		`herald_election_packets_total{kind="ignored"} 7`,
		`herald_fence_on 1`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, `herald_lease_holder{member="",`) {
		t.Error("a holder without a name")
	}
	if strings.Contains(body, `{member="w1"}`) {
		t.Error("a member without a vote counts for the majority")
	}
	if strings.Contains(body, "herald_vip_peers{") {
		t.Error("peers of a VIP on a flat layer 2")
	}
}

func TestServiceMetrics(t *testing.T) {
	services := &admin.Services{
		Synced: true, Counts: announce.Counts{Total: 3, Routes: 2, Failing: 1}, Stands: 6, Held: 4, Obstructed: 5, LeftOut: make([]peering.LeftOut, 2),
		Kubernetes: admin.Kubernetes{Unconnected: "x", Health: kube.Health{Troubles: make([]kube.Trouble, 2), Requests: kube.Requests{Reads: 10, Watches: 11, Writes: 12, Failed: 13}}},
		Writer:     &assign.Status{Writes: true, Refused: map[string]int{"NoPool": 7}, Assignments: 20, Refusals: 21, ServiceWrites: 22, PoolWrites: 23, EventWrites: 24},
		Pools: []admin.Pool{
			{PoolStatus: announce.PoolStatus{Withdrawn: 8}},
			{PoolStatus: announce.PoolStatus{Name: "a", Error: "x", Announced: 1, Draining: 2, Withdrawn: 3, Flat: 4}, IPv4: &admin.Usage{Capacity: 254, Used: 9}, Conflicts: 5},
		},
	}
	_, body := get(t, metrics.NewHandler(func() admin.Status { return admin.Status{Services: services} }, nil, nil), "/metrics")
	for _, want := range []string{
		"herald_services 3", "herald_services_synced 1", "herald_service_routes 2", "herald_service_routes_failing 1",
		"herald_service_addresses_standing 6", "herald_service_addresses_held 4", "herald_service_addresses_obstructed 5",
		`herald_service_addresses{pool="",stage="withdrawn"} 8`, `herald_service_addresses{pool="a",stage="announced"} 1`,
		`herald_service_addresses{pool="a",stage="draining"} 2`, `herald_service_addresses_flat{pool="a"} 4`,
		"herald_service_writer 1", `herald_service_refused{reason="NoPool"} 7`, "herald_service_assignments_total 20",
		"herald_service_refusals_total 21", `herald_service_writes_total{kind="service"} 22`, `herald_service_writes_total{kind="pool"} 23`,
		`herald_service_writes_total{kind="event"} 24`, `herald_pool_addresses{family="ipv4",pool="a"} 254`,
		`herald_pool_addresses_used{family="ipv4",pool="a"} 9`, `herald_pool_conflicts{pool="a"} 5`, `herald_pool_error{pool="a"} 1`,
		"herald_bgppeer_left_out 2", "herald_kube_troubles 3", `herald_kube_requests_total{verb="read"} 10`,
		`herald_kube_requests_total{verb="watch"} 11`, `herald_kube_requests_total{verb="write"} 12`, "herald_kube_failures_total 13",
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	for _, unwanted := range []string{`herald_pool_error{pool=""}`, `family="ipv6"`} {
		if strings.Contains(body, unwanted) {
			t.Errorf("there is %s", unwanted)
		}
	}
	if _, body := get(t, metrics.NewHandler(status, nil, nil), "/metrics"); strings.Contains(body, "herald_service") || strings.Contains(body, "herald_kube") {
		t.Error("metrics of Services without any")
	}
}

// An alert must see a VIP without a holder even if no node has campaigned for it yet.
func TestLeaseThatNobodyStoodFor(t *testing.T) {
	_, body := get(t, metrics.NewHandler(func() admin.Status {
		return admin.Status{Node: "m1", VIPs: []admin.VIP{
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp"}},
			{Status: speaker.Status{Name: "cp", Address: netip.MustParseAddr("fd00:3::100"), Announce: "arp"}},
			{Status: speaker.Status{Name: "routed", Address: netip.MustParseAddr("10.99.0.10"), Announce: "bgp"}},
		}}
	}, nil, nil), "/metrics")
	for _, want := range []string{`herald_lease_held{vip="cp"} 0`, `herald_lease_standing{vip="cp"} 0`, `herald_vip_conflict{address="fd00:3::100",vip="cp"} 0`} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, `herald_lease_held{vip="routed"}`) {
		t.Error("a lease of a VIP over BGP")
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
