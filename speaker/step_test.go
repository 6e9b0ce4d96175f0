package speaker

import (
	"testing"
	"time"
)

func TestBridge(t *testing.T) {
	now := time.Unix(1000, 0)
	lease := now.Add(400 * time.Millisecond)
	tests := []struct {
		name string
		step step
		want time.Time
	}{
		{name: "a check fails", step: step{from: Announced, dst: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "becomes the last resort", step: step{from: Announced, dst: Demoted, bound: true}, want: now.Add(time.Minute)},
		{name: "the last resort drains", step: step{from: Demoted, dst: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "a drain", step: step{from: Announced, dst: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "route withdrawn in a drain", step: step{from: Draining, dst: Lingering, bound: true}, want: now.Add(time.Minute)},
		{name: "fails in a drain", step: step{from: Draining, dst: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "linger ended", step: step{from: Lingering, dst: Withdrawn, bound: true}},
		{name: "undrained", step: step{from: Draining, dst: Announced, bound: true}},
		{name: "healthy again", step: step{from: Withdrawn, dst: Announced}},
		{name: "no change", step: step{from: Announced, dst: Announced, bound: true}},
		{name: "no change in a drain", step: step{from: Draining, dst: Draining, bound: true}},
		{name: "never bound", step: step{from: Announced, dst: Withdrawn}},
		{name: "process paused", step: step{from: Announced, dst: Withdrawn, bound: true, paused: true}},

		{name: "flat: a check fails", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: a drain", step: step{from: Announced, dst: Lingering, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: lease lost", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true}},
		{name: "flat: lease ended", step: step{from: Announced, dst: Withdrawn, bound: true, flat: true, lease: now}},
		{name: "flat: linger ended", step: step{from: Lingering, dst: Withdrawn, bound: true, flat: true, lease: lease}},
		{name: "flat: process paused", step: step{from: Announced, dst: Withdrawn, bound: true, paused: true, flat: true, lease: lease}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.step.bridgeUntil(now); !got.Equal(tt.want) {
				t.Errorf("open until %v, want %v", got, tt.want)
			}
		})
	}
}
