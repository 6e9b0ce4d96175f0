package page

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/status/eventlog"
)

// However many viewers there are, the API is asked once in five seconds, and for two seconds at most.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Reports
		reads := 0
		answers := func(context.Context) ([]v1alpha1.NodeStatus, error) {
			reads++
			return make([]v1alpha1.NodeStatus, reads), nil
		}
		hangs := func(ctx context.Context) ([]v1alpha1.NodeStatus, error) {
			reads++
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var viewers sync.WaitGroup
		for range 50 {
			viewers.Go(func() {
				if list, err := all.Get(answers); len(list) != 1 || err != nil {
					t.Errorf("at first %d, %v", len(list), err)
				}
			})
		}
		viewers.Wait()
		time.Sleep(nodesFor - time.Nanosecond)
		if list, err := all.Get(answers); len(list) != 1 || err != nil {
			t.Errorf("before its time %d, %v", len(list), err)
		}
		time.Sleep(time.Nanosecond)
		began := time.Now()
		for range 50 { // one after the other: time in a bubble does not pass while a goroutine waits for a mutex
			if list, err := all.Get(hangs); list != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("of a server that hangs %d, %v", len(list), err)
			}
		}
		if waited := time.Since(began); waited != nodesWithin || reads != 2 {
			t.Errorf("waited %v, asked %d times", waited, reads)
		}
		time.Sleep(nodesFor)
		if list, err := all.Get(answers); len(list) != 3 || err != nil {
			t.Errorf("of a server that is back %d, %v", len(list), err)
		}
	})
}

// TestSpans draws the history of a check from its present state and its events, newest first.
func TestSpans(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ago := func(minutes float64) time.Time { return now.Add(-time.Duration(minutes * float64(time.Minute))) }
	prev := func(state string, minutes float64) eventlog.Event {
		return eventlog.Event{At: ago(minutes), Of: "check a", State: state}
	}
	draw := func(state, mood string, x, w float64, from float64) span {
		return span{X: x, Width: w, Mood: mood, State: state, From: ago(from)}
	}
	for _, tt := range []struct {
		name   string
		since  float64
		events []eventlog.Event
		want   []span
	}{
		{"all the hour", 600, nil, []span{draw("healthy", good, 0, 720, 600)}},
		{"for half an hour, and nothing is known of before", 30, nil, []span{draw("healthy", good, 360, 360, 30)}},
		{"failed between", 10, []eventlog.Event{prev("healthy", 10), prev("unhealthy", 20), prev("healthy", 90)},
			[]span{draw("healthy", good, 600, 120, 10), draw("unhealthy", bad, 480, 120, 20), draw("healthy", good, 0, 480, 90)}},
		{"events of others", 30, []eventlog.Event{{At: ago(20), Of: "check b", State: "unhealthy"}, {At: ago(20), What: "something"}},
			[]span{draw("healthy", good, 360, 360, 30)}},
		{"told twice", 10, []eventlog.Event{prev("healthy", 10.01), prev("unhealthy", 20), prev("unhealthy", 40)},
			[]span{draw("healthy", good, 599.88, 120.12, 10.01), draw("unhealthy", bad, 240, 359.88, 40)}},
	} {
		got := spans(tt.events, "check a", "healthy", ago(tt.since), now, checkMood)
		near := cmp.Comparer(func(a, b float64) bool { return a-b < 0.01 && b-a < 0.01 })
		if diff := cmp.Diff(tt.want, got, near, cmp.AllowUnexported(span{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
