package soak

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
)

func TestWitness(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	addr := netip.MustParseAddr("10.4.0.10")
	holder := reading{at: 10 * s, addr: addr, stage: "announced", bound: true, open: 300 * ms, least: 10*s + 340*ms, most: 10*s + 400*ms}
	other := reading{at: 10 * s, addr: addr, stage: "withdrawn"}
	with := func(l reading, change func(*reading)) reading { change(&l); return l }
	for _, tt := range []struct {
		name         string
		look         reading
		once, lasted bool // reported after one reading, after two
	}{
		{"holder", holder, false, false},
		{"other", other, false, false},
		{"lingering", with(other, func(l *reading) { l.stage, l.bound = "lingering", true }), false, false},
		{"holder without address", with(holder, func(l *reading) { l.bound = false }), false, true},
		{"holder with its filter closed", with(holder, func(l *reading) { l.open = 0 }), false, true},
		{"holder at the end of its lease", with(holder, func(l *reading) { l.open, l.least = 0, 10*s+60*ms }), false, false},
		{"holder beyond its lease", with(holder, func(l *reading) { l.open = 401 * ms }), true, true},
		{"announced without a lease", with(holder, func(l *reading) { l.least, l.most = 10*s, 10*s }), true, true},
		{"other with the address", with(other, func(l *reading) { l.bound = true }), true, true},
		{"other with its filter open", with(other, func(l *reading) { l.open = ms }), true, true},
		{"lingering and answering", with(other, func(l *reading) { l.stage, l.bound, l.open = "lingering", true, ms }), true, true},
	} {
		w := flatWitness{looks: make(map[string]int)}
		w.judge([]reading{tt.look}, nil)
		if got := len(w.found) > 0; got != tt.once {
			t.Errorf("%s: reported = %t, want %t: %v", tt.name, got, tt.once, w.found)
		}
		w.found = nil
		w.judge([]reading{tt.look}, []reading{tt.look})
		if got := len(w.found) > 0; got != tt.lasted {
			t.Errorf("%s, twice: reported = %t, want %t: %v", tt.name, got, tt.lasted, w.found)
		}
	}
}

func TestUnheld(t *testing.T) {
	const s = time.Second
	trace := &Trace{Ready: 2 * s, End: 60 * s, Incidents: []Incident{
		{Began: 10 * s, Broken: 10 * s, Mending: 12 * s, Mended: 13 * s},
		{Began: 40 * s, Broken: 40 * s, Mending: Never, Mended: Never},
	}, Stalls: []Span{{29 * s, 29*s + s/4}}}
	silences := []holders.Silence{
		{From: 0, To: 2 * s},           // before it was ready
		{From: 6 * s, To: 8 * s},       // unexcused, by the observer's clock
		{From: 11 * s, To: 17 * s},     // a fault and the time to recover
		{From: 22 * s, To: 25*s + s/2}, // unexcused, likewise
		{From: 31 * s, To: 32 * s},     // the observer stalled too
		{From: 45 * s, To: 50 * s},     // a fault that was never mended
	}
	want := []Span{{5 * s, 7 * s}, {21 * s, 24*s + s/2}}
	w := &flatWitness{lease: 600 * time.Millisecond, offset: s}
	if got := w.unheld(trace, silences); !slices.Equal(got, want) {
		t.Errorf("the gaps are %v, want %v", got, want)
	}
}

func TestRaces(t *testing.T) {
	report := func(write, read string) string {
		return "level=INFO\n==================\nWARNING: DATA RACE\nWrite at 0x00c001127200 by goroutine 44:\n  " + write + "\n      file.go:1 +0x1\n\nPrevious read at 0x00c001127200 by goroutine 32:\n  " + read + "\n      file.go:2 +0x2\n==================\nlevel=INFO\n"
	}
	const gobgp, herald = "github.com/osrg/gobgp/v4/pkg/server.(*fsmHandler).active()", "github.com/herald-vip/herald/bgp.(*Server).run()"
	for name, tt := range map[string]struct {
		log  string
		want int
	}{
		"none":                 {"level=INFO msg=\"herald runs\"\n", 0},
		"Herald's":             {report(herald, herald), 1},
		"Herald and GoBGP":     {report(herald, gobgp), 1},
		"GoBGP and Herald":     {report(gobgp, herald), 1},
		"the standard library": {report("runtime.mapassign()", "runtime.mapaccess1()"), 1},
		"GoBGP's own":          {report(gobgp, gobgp), 0},
		"two":                  {report(gobgp, gobgp) + report(herald, herald), 1},
		"cut off":              {"==================\nWARNING: DATA RACE\nWrite at 0x1 by goroutine 4:", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := races(tt.log); len(got) != tt.want {
				t.Errorf("%d races, want %d: %q", len(got), tt.want, got)
			}
		})
	}
}
