package soak

import (
	"net/netip"
	"testing"
	"time"
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
