package probe_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/must"
)

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Latencies of 1..100 ms in a row, then one failure that must not count.
		tg := target(func(since time.Duration) (time.Duration, error) {
			n := since/(10*ms) + 1
			if n > 100 {
				return 0, refused()
			}
			return n * ms, nil
		})
		p := &probe.Prober{Target: "192.0.2.1:443", Interval: 10 * ms, Timeout: time.Second, Dial: tg.dialer()}
		res := runFor(t, p, 1009*ms)
		if res.Total != 101 || res.Failed != 1 {
			t.Fatalf("total %d, failed %d, want 101 and 1", res.Total, res.Failed)
		}
		near := func(name string, got, want time.Duration) {
			if off := (got - want).Abs(); off > want/50 {
				t.Errorf("%s = %v, want %v within 2 %%", name, got, want)
			}
		}
		if res.Latency.Min != ms || res.Latency.Max != 100*ms {
			t.Errorf("min %v, max %v, want exactly 1ms and 100ms", res.Latency.Min, res.Latency.Max)
		}
		near("median", res.Latency.Median, 51*ms)
		near("p99", res.Latency.P99, 100*ms)
	})
}

func sampleResult() *probe.Result {
	outage := probe.Outage{
		Start: 1234567 * time.Microsecond, End: 1429567 * time.Microsecond,
		Failures: map[probe.Outcome]int{probe.Refused: 1, probe.Timeout: 38},
	}
	ongoing := probe.Outage{
		Start: 9900 * ms, End: 9995 * ms, Ongoing: true,
		Failures: map[probe.Outcome]int{probe.Unreachable: 20},
	}
	return &probe.Result{
		Target: "10.99.0.10:6443", Interval: 5 * ms, Timeout: 100 * ms,
		Began:   time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		Elapsed: 10*time.Second + 42*time.Microsecond,
		Total:   1998, Failed: 59, Late: 2, MaxDelay: 12345 * time.Microsecond,
		Outcomes: map[probe.Outcome]int{
			probe.OK: 1938, probe.Refused: 1, probe.Timeout: 38, probe.Unreachable: 20, probe.Stalled: 1,
		},
		Latency:     probe.Latency{Min: 81234, Median: 123456, P99: 2345678, Max: 45678901},
		Servers:     map[string]int{"m2": 900, "m1": 1000, "": 38},
		OutageCount: 5, Longest: &outage, Downtime: 290 * ms,
		Outages: []probe.Outage{outage, ongoing},
	}
}

func TestWriteText(t *testing.T) {
	var b strings.Builder
	must.Do(t, sampleResult().WriteText(&b))
	want := `10.99.0.10:6443: 1998 attempts in 10s, one every 5ms, timeout 100ms
outcomes: 1938 ok, 1 refused, 38 timeout, 20 unreachable, 1 stalled
latency:  min 81µs, median 123µs, p99 2.346ms, max 45.7ms
prober:   missed 2 ticks and was up to 12.3ms behind: this machine was busy
servers:  unnamed 38, m1 1000, m2 900
outages:  5, longest 195ms, together 290ms
  (3 older ones not listed)
  at +1.235s for 195ms: 39 failed (1 refused, 38 timeout)
  at +9.9s for at least 95ms: 20 failed (20 unreachable)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}

	b.Reset()
	quiet := &probe.Result{Target: "h:1", Interval: 5 * ms, Timeout: 100 * ms}
	must.Do(t, quiet.WriteText(&b))
	want = "h:1: 0 attempts in 0s, one every 5ms, timeout 100ms\noutages:  none\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text of an empty result (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	want := sampleResult()
	want.Attempts = []probe.Attempt{{Start: 5 * ms, Delay: 1, Latency: 2, Outcome: probe.Reset, Server: "m1"}}
	text, err := json.Marshal(want)
	must.Do(t, err)
	for _, part := range []string{`"outcome":"reset"`, `"startNs":5000000`, `"timeout":38`, `"downtimeNs":290000000`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("JSON lacks %s: %s", part, text)
		}
	}
	got := new(probe.Result)
	must.Do(t, json.Unmarshal(text, got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`"nonsense"`), new(probe.Outcome)); err == nil {
		t.Error("an unknown outcome was accepted")
	}
}

func TestMedianOfAnySize(t *testing.T) {
	for d := time.Duration(40); d < 10*time.Second; d += d/3 + 1 {
		synctest.Test(t, func(t *testing.T) {
			tg := target(func(since time.Duration) (time.Duration, error) {
				return []time.Duration{d / 2, d, 2 * d}[since/time.Minute], nil
			})
			p := &probe.Prober{Target: "192.0.2.1:443", Interval: time.Minute, Timeout: 50 * time.Second, Dial: tg.dialer()}
			got := runFor(t, p, 3*time.Minute-ms).Latency.Median
			if (got - d).Abs() > d/50 {
				t.Errorf("median of %v, %v and %v = %v, off by more than 2 %%", d/2, d, 2*d, got)
			}
		})
	}
}
