package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
)

// TestOutage writes attempts as text, one every 50 ms: . is good, x failed, ? inconclusive.
func TestOutage(t *testing.T) {
	const every = 50 * time.Millisecond
	quiet := strings.Repeat(".", 10)
	tests := []struct {
		name, attempts string
		want           int // in intervals
		open           bool
	}{
		{"nothing", "", 0, false},
		{"none failed", "....", 0, false},
		{"one failed", "..x" + quiet, 1, false},
		{"a row", "..xxx" + quiet, 3, false},
		{"good ones between", "..x..x.x" + quiet, 6, false},
		{"the longer of two", "..x.x" + quiet + "xxxxx" + quiet, 5, false},
		{"the longer comes first", "..xxxxx" + quiet + "x.x" + quiet, 5, false},
		{"inconclusive ones do not count", "..x?x?????" + quiet, 8, false},
		{"none left", "..xxx", 2, true},
		{"not long enough ago", "..xxx...", 3, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var list []probe.Attempt
			for i, c := range tt.attempts {
				a := probe.Attempt{Start: time.Duration(i) * every, Outcome: probe.OK}
				switch c {
				case 'x':
					a.Outcome = probe.Refused
				case '?':
					a.Outcome = probe.Stalled
				}
				list = append(list, a)
			}
			got, open := Outage(list)
			if want := time.Duration(tt.want) * every; got != want || open != tt.open {
				t.Errorf("%v, %t; want %v, %t", got, open, want, tt.open)
			}
		})
	}
}
