package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Pauses before something that failed is tried again, which grow.
const (
	retryFirst, retryLast = 200 * time.Millisecond, 30 * time.Second
	// workers are how many things are worked on at once.
	workers = 16
)

// Queue has things worked on that may need it, each by its key: never the same twice at once, and again if more
// happened meanwhile or the work failed.
type Queue struct {
	keys workqueue.TypedRateLimitingInterface[string]
}

// NewQueue is an empty queue.
func NewQueue() *Queue {
	return &Queue{workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast))}
}

// Add says that a key may need work.
func (q *Queue) Add(key string) { q.keys.Add(key) }

// AddAfter says that it may need some after a while.
func (q *Queue) AddAfter(key string, d time.Duration) { q.keys.AddAfter(key, d) }

// Run has f do the work until ctx ends, and returns when it has. An error is an attempt to repeat; f has told of it.
func (q *Queue) Run(ctx context.Context, f func(ctx context.Context, key string) error) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, ended := q.keys.Get()
				if ended {
					return
				}
				if err := f(ctx, key); err != nil && ctx.Err() == nil {
					q.keys.AddRateLimited(key)
				} else {
					q.keys.Forget(key)
				}
				q.keys.Done(key)
			}
		})
	}
	<-ctx.Done()
	q.keys.ShutDown()
	wg.Wait()
}
