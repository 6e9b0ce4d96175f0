package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/testenv/balance"
)

// balancerExample are results with something of every kind.
func balancerExample() *BalancerResults {
	return &BalancerResults{
		Setting: Setting{
			Began: time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), Took: 18 * time.Minute,
			Machine:  Machine{CPU: "a processor", Cores: 2, Memory: 24 << 30, Kernel: "6.18"},
			Versions: map[string]string{"Herald": "1", "HAProxy": "2"},
		},
		Figures: []BalancerFigure{
			{viaHerald, Spread, local, []float64{1040, 1000, 960}},
			{viaHerald, Spread, remote, []float64{1060, 1000, 940}},
			{direct, Rate, local, []float64{20000, 18000, 19000}},
			{direct, ConnectionCPU, local, []float64{100e-6, 100e-6}},
			{direct, ConnectionCPU, remote, []float64{100e-6}},
			{forwarded, ConnectionCPU, remote, []float64{120e-6}},
			{viaHerald, ConnectionCPU, local, []float64{110e-6}},
			{viaHerald, ConnectionCPU, remote, []float64{160e-6}},
			{viaHAProxy, ConnectionCPU, local, []float64{140e-6}},
			{viaHAProxy, ConnectionCPU, remote, []float64{220e-6}},
			{direct, FixedP99, local, []float64{0.001, 0.001, 0.009}},
			{directAgain, FixedP99, local, []float64{0.0009, 0.001, 0.0091}},
			{viaHerald, FixedP99, local, []float64{0.00109, 0.002, 0.0091}}, // 1.09, 2 and 1.01 ×
			{direct, FixedP99, remote, []float64{0.001, 0.002, 0.003}},
			{viaHerald, FixedP99, remote, []float64{0.0012, 0.0019, 0.0034}}, // of medians it would be 0.95 ×
			{direct, Throughput1, local, []float64{10}},
			{viaHerald, Throughput1, local, []float64{9.4}},
			{direct, GigabyteCPU8, local, []float64{0.5}},
			{viaHerald, GigabyteCPU8, local, []float64{0.6}},
			{viaHAProxy, GigabyteCPU8, local, []float64{1.1}},
			{viaHAProxySpl, GigabyteCPU8, local, []float64{0.8}},
			{viaHerald, KilledTold, "", []float64{0.02, 0.06, 0.01}},
			{viaHerald, KilledOthers, "", []float64{0, 900, 1, 900}},
			{viaHerald, VanishedOut, "", []float64{0.7}},
			{viaHerald, DrainedFailed, "", []float64{0, 1000, 0, 1000}},
			{viaHerald, DrainedLost, "", nil},
			{viaHerald, RestartLost, "", []float64{0, 0}},
			{viaHAProxy, RestartLost, "", []float64{5000, 5000}},
		},
	}
}

func TestBalancerTable(t *testing.T) {
	var b bytes.Buffer
	if err := balancerExample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "balancer.md", b.Bytes())
}

// TestBalancerTargets wants each target met where it is, and missed where not.
func TestBalancerTargets(t *testing.T) {
	got := make(map[string]bool)
	for _, target := range balancerExample().Targets() {
		got[strings.TrimSpace(target.Measure+" "+target.Path)] = target.Met
	}
	want := map[string]bool{
		"spread of connections local":                                  true,
		"spread of connections remote":                                 false,
		"new connections for each second of the balancer's CPU local":  true,
		"new connections for each second of the balancer's CPU remote": false,
		"latency at 1,000 connections/s, p99 local":                    true,
		"latency at 1,000 connections/s, p99 remote":                   false,
		"throughput, 1 stream local":                                   false,
		"the balancer's CPU for 10^9 bytes, 8 streams local":           false, // a quarter of what plain HAProxy takes
		"server killed: from its speaker's notice until out":           true,
		"server killed: connections to others":                         false,
		"host vanished: until out":                                     false,
		"server drained and added: new connections":                    true,
		"Herald restarted: established connections":                    false, // of none
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBalancerJSON(t *testing.T) {
	comesBack(t, balancerExample(), ReadBalancerJSON, `{"figures": [{"balancers": "x"}]}`)
}

func TestBalancerPublish(t *testing.T) {
	publishes(t, balancerExample(), "HAProxy 2. [All values](benchmarks/2026-11-22.json)")
}

func TestBalancerPage(t *testing.T) {
	pageTells(t, "balancer", ReadBalancerJSON)
}

// TestNoteJoined reads from a client's connections when a worker followed.
func TestNoteJoined(t *testing.T) {
	began := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	at := func(ms int, server string, cause balance.Cause) balance.Connection {
		return balance.Connection{At: began.Add(time.Duration(ms) * time.Millisecond), Server: server, Cause: cause}
	}
	b := new(balancerBench)
	s := &balancerStage{balancerBench: b}
	s.noteJoined(&balance.LoadResult{Kept: []balance.Connection{
		at(0, "m1", ""), at(100, "m2", ""), at(450, newcomer, ""), at(500, newcomer, ""),
		at(1000, newcomer, ""), at(1030, newcomer, ""), at(1040, "", balance.Refused), at(1050, "m1", ""),
	}}, began, began.Add(400*time.Millisecond), began.Add(time.Second))
	got := make(map[BalancerMeasure][]float64)
	for _, f := range b.results.Figures {
		got[f.Measure] = f.Values
	}
	want := map[BalancerMeasure][]float64{Joined: {0.05}, JoinedStart: {0.45}, Left: {0.03}, JoinedFailed: {0, 4}, LeftFailed: {1, 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoteDied tells the connections to a dead master from others that failed.
func TestNoteDied(t *testing.T) {
	died := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	const took = 900 * time.Millisecond
	for name, c := range map[string]struct {
		every, until int // every so many connections fails, until so many milliseconds after
		early        int // failures long before
		others       bool
	}{
		"its share":         {every: 4, until: 500},
		"more than that":    {every: 2, until: 500, others: true},
		"one before":        {every: 4, until: 500, early: 1, others: true},
		"none that was new": {every: 4, until: -1},
	} {
		r := new(balance.LoadResult)
		for i := range c.early {
			r.Kept = append(r.Kept, balance.Connection{At: died.Add(-2*time.Second - time.Duration(i)), Took: took, Cause: balance.Silent})
		}
		for i, ms := 0, 0; ms < 1000; i, ms = i+1, ms+5 {
			one := balance.Connection{At: died.Add(time.Duration(ms) * time.Millisecond), Took: time.Millisecond, Server: "m1"}
			if i%c.every == 0 && ms <= c.until {
				one.Took, one.Server, one.Cause = took, "", balance.Silent
			}
			r.Kept = append(r.Kept, one)
		}
		for _, one := range r.Kept {
			if one.Cause != "" {
				r.Failures = append(r.Failures, one)
			}
		}
		r.Failed = len(r.Failures)
		r.Good = len(r.Kept) - r.Failed
		b := new(balancerBench)
		s := &balancerStage{balancerBench: b}
		s.noteDied(r, died)
		last, _ := b.results.find(viaHerald, Died, "")
		if want := float64(max(0, c.until)) / 1000; last.Values[0] != want {
			t.Errorf("%s: the last was after %v s, want %v", name, last.Values[0], want)
		}
		if others, _ := b.results.find(viaHerald, DiedOthers, ""); (others.Values[0] > 0) != c.others {
			t.Errorf("%s: %v of others failed", name, others.Values[0])
		}
	}
}
