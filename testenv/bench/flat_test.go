package bench

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/probe"
	"github.com/herald-vip/herald/testenv/segment"
)

// TestFlatConfigurations wants Herald to take what the template makes for it,
// and every speaker's faults to be named once.
func TestFlatConfigurations(t *testing.T) {
	for _, s := range []flatSpeaker{heraldARP{}, heraldARP{lease: shortLease}, keepalived{tuned: true}, keepalived{}} {
		t.Run(s.name(), func(t *testing.T) {
			dir := t.TempDir()
			if err := s.configure("../topologies/bench-arp", dir); err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for _, f := range s.faults() {
				if seen[f.name] || f.strike == nil {
					t.Errorf("fault %q is there twice, or does nothing", f.name)
				}
				seen[f.name] = true
			}
			if _, ok := s.(heraldARP); !ok {
				return
			}
			// In the node the folder is /etc/herald, so the key is not where the file says.
			path := filepath.Join(dir, "m2", heraldFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			here := strings.ReplaceAll(string(text), "/etc/herald", filepath.Dir(path))
			if err := os.WriteFile(path, []byte(here), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if want := s.name(); heraldARPName(cfg.Election.Lease) != want || cfg.Realtime != (cfg.Election.Lease == shortLease) {
				t.Errorf("a lease of %v, real time %t; want those of %q", cfg.Election.Lease, cfg.Realtime, want)
			}
		})
	}
}

var vip4, vip6 = netip.MustParseAddr("10.3.0.100"), netip.MustParseAddr("fd00:3::100")

// sighting is one of a master at some milliseconds.
func sighting(ms int, master string, act segment.Act, vip netip.Addr) segment.Sighting {
	at := time.Duration(ms) * time.Millisecond
	return segment.Sighting{At: at, Asked: at, VIP: vip, Master: master, Act: act}
}

func TestTaken(t *testing.T) {
	const since = 100 * time.Millisecond
	tests := []struct {
		name string
		list []segment.Sighting
		want time.Duration
		ok   bool
	}{
		{"nothing", nil, 0, false},
		{"the holder alone", []segment.Sighting{sighting(110, "m1", segment.Answers, vip4), sighting(110, "m1", segment.Answers, vip6)}, 0, false},
		{"one family", []segment.Sighting{sighting(150, "m2", segment.Announces, vip4)}, 50 * time.Millisecond, false},
		{"both", []segment.Sighting{
			sighting(150, "m2", segment.Announces, vip4), sighting(160, "m2", segment.Answers, vip6), sighting(190, "m2", segment.Answers, vip4),
		}, 60 * time.Millisecond, true},
		{"beside the holder", []segment.Sighting{
			sighting(150, "m1", segment.Answers, vip4), sighting(151, "m3", segment.Answers, vip4), sighting(152, "m2", segment.Answers, vip6),
		}, 52 * time.Millisecond, true},
		{"packets are no claim", []segment.Sighting{sighting(150, "m2", segment.Accepts, vip4), sighting(150, "m2", segment.Accepts, vip6)}, 0, false},
		{"before the fault", []segment.Sighting{sighting(50, "m2", segment.Answers, vip4), sighting(50, "m2", segment.Answers, vip6)}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := taken(&segment.Trace{Sightings: tt.list}, flatVIPs(), "m1", since)
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("%v, %t; want %v, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestJudge wants two masters that claim the VIP to be told, and for how long;
// but not what was before the fault.
func TestJudge(t *testing.T) {
	var both []segment.Sighting
	for at := 0; at <= 500; at += 10 {
		both = append(both, sighting(at, "m1", segment.Answers, vip4))
		if at >= 200 && at <= 400 {
			both = append(both, sighting(at, "m2", segment.Answers, vip4))
		}
	}
	var trial Trial
	trial.judge(&segment.Trace{Sightings: both}, 100*time.Millisecond)
	if trial.Holders != 2 || trial.Split < 190*time.Millisecond || trial.Split > 210*time.Millisecond {
		t.Errorf("%d holders for %v, want 2 for 200 ms", trial.Holders, trial.Split)
	}
	trial = Trial{}
	trial.judge(&segment.Trace{Sightings: both}, 450*time.Millisecond)
	if trial.Holders != 1 || trial.Split != 0 {
		t.Errorf("%d holders for %v, want 1: the other was before", trial.Holders, trial.Split)
	}
}

// TestTellBoth has two clients, one a family, and a fault that was undone after
// three seconds.
func TestTellBoth(t *testing.T) {
	began := time.Now()
	client := func(failed func(time.Duration) bool) *probe.Result {
		r := &probe.Result{Began: began, MaxDelay: time.Millisecond}
		for at := time.Duration(0); at < 6*time.Second; at += 10 * time.Millisecond {
			a := probe.Attempt{Start: at}
			if failed(at) {
				a.Outcome = probe.Timeout
			}
			r.Attempts = append(r.Attempts, a)
		}
		return r
	}
	between := func(from, to time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at >= from && at < to }
	}
	list := []*probe.Result{
		client(between(time.Second, 1200*time.Millisecond)),
		client(func(at time.Duration) bool {
			return between(time.Second, 1500*time.Millisecond)(at) || between(4*time.Second, 4100*time.Millisecond)(at)
		}),
	}
	var unplanned Trial
	unplanned.tellBoth(list, began.Add(3*time.Second))
	want := Trial{Attempts: 600, Failed: 70, Outage: 500 * time.Millisecond, After: took(100), Late: time.Millisecond}
	if diff := cmp.Diff(want, unplanned); diff != "" {
		t.Errorf("unplanned (-want +got):\n%s", diff)
	}
	planned := Trial{Planned: true}
	planned.tellBoth(list, began.Add(3*time.Second))
	want = Trial{Planned: true, Attempts: 1200, Failed: 80, Outage: 500 * time.Millisecond, Late: time.Millisecond}
	if diff := cmp.Diff(want, planned); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}

func TestTargets(t *testing.T) {
	want := []Target{
		{Fault: apiserverKilled, Speaker: "herald, lease 600 ms", Wanted: "≤ 40 ms", Measured: "9.0 (9.0–9.0) ms", Met: true},
		{Fault: drained, Speaker: "herald, lease 600 ms", Wanted: "0 failed", Measured: "0 of 150", Met: true},
		{Fault: speakerKilled, Speaker: "herald, lease 600 ms", Wanted: "≤ 800 ms", Measured: "560 (560–560) ms", Met: true},
		{Fault: speakerKilled, Speaker: "herald, lease 200 ms", Wanted: "≤ 300 ms, as keepalived, tuned", Measured: "180 (180–180) ms", Met: true},
		{Fault: parted, Speaker: "herald, lease 200 ms", Wanted: "≤ 400 ms", Measured: "450 (450–450) ms"},
		{Fault: parted, Speaker: "herald, lease 200 ms", Wanted: "no outage after it", Measured: "35 ms at most"},
		{Fault: "all of them", Speaker: "herald, lease 600 ms", Wanted: "never two holders", Measured: "in 0 of 3 trials", Met: true},
		{Fault: "all of them", Speaker: "herald, lease 200 ms", Wanted: "never two holders", Measured: "in 1 of 2 trials"},
	}
	if diff := cmp.Diff(want, example().Targets()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list := (&Results{}).Targets(); list != nil {
		t.Errorf("of nothing, %v is wanted", list)
	}
}

func TestBridgeTargets(t *testing.T) {
	var r Results
	for i, outage := range []time.Duration{0, 14 * time.Millisecond, 60 * time.Millisecond} {
		for fault, failed := range map[string]int{apiserverKilled: i, drained: 0, upgraded: i} {
			for _, speaker := range []string{"herald", heraldBridge} {
				r.Trials = append(r.Trials, Trial{Speaker: speaker, Fault: fault, Router: "FRR", Number: i, Attempts: 150, Failed: failed, Outage: outage})
			}
		}
	}
	list := r.BridgeTargets("FRR")
	slices.SortFunc(list, func(a, b Target) int { return strings.Compare(a.Fault, b.Fault) })
	want := []Target{
		{Fault: apiserverKilled, Speaker: "herald, bridge", Wanted: "≤ 15 ms", Measured: "14 (0–60) ms", Met: true},
		{Fault: drained, Speaker: "herald, bridge", Wanted: "0 failed", Measured: "0 of 450", Met: true},
		{Fault: upgraded, Speaker: "herald, bridge", Wanted: "0 failed", Measured: "3 of 450"},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list := r.BridgeTargets("BIRD"); list != nil {
		t.Errorf("of nothing, %v is wanted", list)
	}
}

func TestTableFulls(t *testing.T) {
	const text = `entries  allocs   table_fulls
00000078 000081db 000017ae
00000078 000095da 00000001
`
	if n, err := tableFulls(text); n != 0x17af || err != nil {
		t.Errorf("%#x, %v; want 0x17af", n, err)
	}
	if n, err := tableFulls("entries  allocs\n00000078 000081db\n"); n != 0 || err != nil {
		t.Errorf("without the column: %d, %v", n, err)
	}
	for _, bad := range []string{"table_fulls\nx\n", "entries table_fulls\n0\n"} {
		if _, err := tableFulls(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
	if _, err := neighbourOverflows(); err != nil {
		t.Error(err)
	}
}
