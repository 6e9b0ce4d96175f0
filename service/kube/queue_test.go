package kube

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/testenv/wait"
)

// Failed work is retried after growing pauses, keys added meanwhile are not lost, and no key is worked on twice at once.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue()
		var mu sync.Mutex
		began, busy, times := time.Now(), make(map[string]bool), make(map[string][]time.Duration)
		stop := wait.Go(t, func(ctx context.Context) {
			q.Run(ctx, func(_ context.Context, key string) error {
				mu.Lock()
				if busy[key] {
					t.Errorf("%s is worked on twice at once", key)
				}
				busy[key] = true
				times[key] = append(times[key], time.Since(began))
				n := len(times[key])
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				busy[key] = false
				if key == "fails" && n < 3 {
					return errors.New("it fails")
				}
				return nil
			})
		})
		q.Add("fails")
		q.Add("works")
		synctest.Wait()
		q.Add("works") // while it is worked on
		q.AddAfter("later", 10*time.Second)
		time.Sleep(time.Minute)
		stop()
		want := map[string][]time.Duration{
			"fails": {0, time.Second + retryFirst, 2*time.Second + 3*retryFirst},
			"works": {0, time.Second}, "later": {10 * time.Second},
		}
		if !maps.EqualFunc(times, want, slices.Equal) {
			t.Errorf("worked at %v, want %v", times, want)
		}
	})
}

// A restarting server refuses, and for a moment forbids, requests of every kind.
func TestTroubleIsLoggedOnceAndIfItLasts(t *testing.T) {
	const refused, forbids = "connection refused", "the server forbids it"
	start := time.Now()
	s := newSaid()
	for _, step := range []struct {
		at            time.Duration
		about, words  string
		changed, over bool
	}{
		{0, "services", refused, false, false},
		{0, "nodes", refused, false, false},
		{1 * time.Second, "services", forbids, false, false},
		{2 * time.Second, "services", "", false, false}, // it was not logged
		{2900 * time.Millisecond, "nodes", refused, false, false},
		{3 * time.Second, "nodes", refused, true, false},
		{4 * time.Second, "services", refused, false, false},
		{9 * time.Second, "services", refused, false, false}, // the same reason is logged already
		{9 * time.Second, "nodes", forbids, false, false},
		{12 * time.Second, "nodes", forbids, true, false},
		{13 * time.Second, "services", "", false, false}, // another logged trouble lasts
		{14 * time.Second, "nodes", "", false, true},
		{15 * time.Second, "nodes", "", false, false},
		{16 * time.Second, "nodes", refused, false, false},
		{20 * time.Second, "nodes", refused, true, false}, // logged again
	} {
		changed, over := s.replace(start.Add(step.at), step.about, step.words)
		if changed != step.changed || over != step.over {
			t.Errorf("%v, %s %q: changed %t, over %t", step.at, step.about, step.words, changed, over)
		}
	}
	if since := s.words["nodes"].Since.Sub(start); since != 16*time.Second {
		t.Errorf("the trouble of nodes began at %v", since)
	}
}
