package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/admin"
	"github.com/herald-vip/herald/metrics"
)

func status() admin.Status {
	at := time.Unix(1767000000, 500e6)
	return admin.Status{
		Version: "v1", Config: admin.Config{Generation: 3, Loaded: at, Error: "bad"},
		VIPs: []admin.VIP{
			{Name: "cp", Address: netip.MustParseAddr("10.99.0.10"), Stage: "announced", Decided: true, Since: at, Restored: 2,
				LastWithdrawal: &admin.Withdrawal{At: at, Seconds: 0.004}},
			{Name: "cp", Address: netip.MustParseAddr("fd00::10"), Stage: "announced", Decided: true, Error: "no link"},
		},
		Checks: []admin.Check{{Name: "apiserver", State: "unhealthy", Warning: "expires", Latency: 0.25, Passes: 7, Failures: 2}},
		Peers: []admin.Peer{{Name: "10.0.1.254", ASN: 64500, State: "established", Drops: 1,
			Advertised: []netip.Prefix{netip.MustParsePrefix("10.99.0.10/32"), netip.MustParsePrefix("10.99.0.11/32")},
			BFD:        &admin.BFD{State: "up", Since: at, DetectionTime: 0.15, Downs: 4, In: 10, Out: 11, Discarded: 1}}},
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestMetrics(t *testing.T) {
	code, body := get(t, metrics.NewHandler(status), "/metrics")
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
			VIPs: []admin.VIP{{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp", Conflict: "02:00:00:00:00:09", Conflicts: 3}},
			Election: &admin.Election{
				Fence: admin.FenceOn, Problem: "differs", Change: "waits for m3", Strangers: 5, Undecipherable: 6, Ignored: 7,
				Members: []admin.Member{{Name: "m1", Self: true}, {Name: "m2", Alive: true}, {Name: "m3"}},
				Leases:  []admin.Lease{{VIP: "cp", Holder: "m1", Epoch: 9, Stands: true}, {VIP: "other", Holder: "m2"}, {VIP: "none"}},
			},
		}
	}), "/metrics")
	for _, want := range []string{
		`herald_vip_conflict{address="10.3.0.100",vip="cp"} 1`,
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
	if strings.Contains(body, "herald_vip_peers{") {
		t.Error("peers of a VIP on a flat layer 2")
	}
}

// A VIP that no node has been fit for yet is held by nobody, which an alert has to see.
func TestLeaseThatNobodyStoodFor(t *testing.T) {
	_, body := get(t, metrics.NewHandler(func() admin.Status {
		return admin.Status{Node: "m1", VIPs: []admin.VIP{
			{Name: "cp", Address: netip.MustParseAddr("10.3.0.100"), Announce: "arp"},
			{Name: "cp", Address: netip.MustParseAddr("fd00:3::100"), Announce: "arp"},
			{Name: "routed", Address: netip.MustParseAddr("10.99.0.10"), Announce: "bgp"},
		}}
	}), "/metrics")
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
	h := metrics.NewHandler(func() admin.Status { return s })
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
