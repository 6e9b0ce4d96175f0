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
