package bgp

import (
	"strings"
	"testing"
	"time"
)

func TestExcess(t *testing.T) {
	before := usage{routes: 10, refreshes: 100}
	tests := []struct {
		name string
		now  usage
		hold time.Duration
		want string
	}{
		{name: "nothing", now: before, hold: 3 * time.Second},
		{name: "just allowed", now: usage{routes: 1000, refreshes: 110}, hold: 3 * time.Second},
		{name: "a route too many", now: usage{routes: 1001, refreshes: 100}, hold: 3 * time.Second, want: "more than 1000 routes"},
		{name: "a refresh too many", now: usage{refreshes: 111}, hold: 3 * time.Second, want: "all routes again 11 times"},
		{name: "a new session resets the counters", now: usage{}, hold: 3 * time.Second},
		{name: "no hold time", now: before, want: "hold time of 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := excess(before, tt.now, tt.hold, 1000)
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDamp(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 0, 1: 0, 3: 0, 4: time.Second, 5: 2 * time.Second, 8: 16 * time.Second, 9: 30 * time.Second, 1_000_000: 30 * time.Second,
	} {
		if got := damp(n); got != want {
			t.Errorf("after %d short sessions the pause is %v, want %v", n, got, want)
		}
	}
}
