package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Growing pauses between retries.
const (
	retryFirst, retryLast = 200 * time.Millisecond, 30 * time.Second
	// workers limits concurrent work.
	workers = 16
)

// Queue schedules work by key. It never works on the same key twice at once. It repeats the work on a key that was added
// again meanwhile, or that failed.
type Queue struct {
	workqueue.TypedRateLimitingInterface[string]
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast))}
}

// Run calls f for the keys until ctx ends and all calls have returned. If f returns an error, the key is retried; f must
// log the error itself.
func (q *Queue) Run(ctx context.Context, f func(ctx context.Context, key string) error) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, ended := q.Get()
				if ended {
					return
				}
				if err := f(ctx, key); err != nil && ctx.Err() == nil {
					q.AddRateLimited(key)
				} else {
					q.Forget(key)
				}
				q.Done(key)
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	wg.Wait()
}
