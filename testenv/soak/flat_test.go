package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/holders"
)

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
