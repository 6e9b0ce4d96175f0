package page

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
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
