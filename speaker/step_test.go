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
		{name: "a check fails", step: step{from: Announced, to: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "the last resort", step: step{from: Announced, to: Demoted, bound: true}, want: now.Add(time.Minute)},
		{name: "and it leaves", step: step{from: Demoted, to: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "a drain", step: step{from: Announced, to: Draining, bound: true}, want: now.Add(time.Minute)},
		{name: "its route is withdrawn", step: step{from: Draining, to: Lingering, bound: true}, want: now.Add(time.Minute)},
		{name: "it fails while it drains", step: step{from: Draining, to: Withdrawn, bound: true}, want: now.Add(time.Minute)},
		{name: "its linger is over", step: step{from: Lingering, to: Withdrawn, bound: true}},
		{name: "undrained", step: step{from: Draining, to: Announced, bound: true}},
		{name: "well again", step: step{from: Withdrawn, to: Announced}},
		{name: "nothing changes", step: step{from: Announced, to: Announced, bound: true}},
		{name: "nothing changes while it drains", step: step{from: Draining, to: Draining, bound: true}},
		{name: "nobody knows of what was never bound", step: step{from: Announced, to: Withdrawn}},
		{name: "this process stood still", step: step{from: Announced, to: Withdrawn, bound: true, paused: true}},

		{name: "flat: a check fails", step: step{from: Announced, to: Withdrawn, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: a drain", step: step{from: Announced, to: Lingering, bound: true, flat: true, lease: lease}, want: lease},
		{name: "flat: the lease was lost", step: step{from: Announced, to: Withdrawn, bound: true, flat: true}},
		{name: "flat: the lease has ended", step: step{from: Announced, to: Withdrawn, bound: true, flat: true, lease: now}},
		{name: "flat: it lingered long enough", step: step{from: Lingering, to: Withdrawn, bound: true, flat: true, lease: lease}},
		{name: "flat: this process stood still", step: step{from: Announced, to: Withdrawn, bound: true, paused: true, flat: true, lease: lease}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.step.bridgeUntil(now); !got.Equal(tt.want) {
				t.Errorf("open until %v, want %v", got, tt.want)
			}
		})
	}
}
