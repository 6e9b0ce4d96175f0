package arp

import (
	"slices"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	start := time.Now()
	for name, tt := range map[string]struct {
		late map[int]time.Duration // delay of the n-th announcement
		want []time.Duration
	}{
		"in time":       {nil, []time.Duration{0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1500 * ms, 3000 * ms, 63 * time.Second, 123 * time.Second}},
		"a little late": {map[int]time.Duration{1: 10 * ms}, []time.Duration{0, 60 * ms, 150 * ms, 350 * ms}},
		"very late: skips announcements": {map[int]time.Duration{2: time.Second},
			[]time.Duration{0, 50 * ms, 1150 * ms, 1500 * ms, 3000 * ms, 63 * time.Second}},
		"after all of the burst": {map[int]time.Duration{1: time.Hour}, []time.Duration{0, time.Hour + 50*ms, time.Hour + 50*ms + time.Minute}},
	} {
		s := startSchedule(start, time.Minute)
		var got []time.Duration
		for i := range tt.want {
			now := s.next.Add(tt.late[i])
			if s.due(s.next.Add(-1)) || !s.due(now) {
				t.Errorf("%s: announcement %d is due at the wrong time", name, i)
			}
			got = append(got, now.Sub(start))
			s = s.done(now)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, tt.want)
		}
	}
}
