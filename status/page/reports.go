package page

import (
	"context"
	"sync"
	"time"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// The page reads the reports of all nodes once in nodesFor, however many viewers it has, and waits nodesWithin for the answer.
const nodesFor, nodesWithin = 5 * time.Second, 2 * time.Second

// Reports caches the reports of all nodes. The zero value is empty.
type Reports struct {
	mu   sync.Mutex
	at   time.Time
	list []v1alpha1.NodeStatus
	err  error
}

// Get returns the reports, and reads them if they are old. Other viewers wait for the answer.
func (r *Reports) Get(read func(context.Context) ([]v1alpha1.NodeStatus, error)) ([]v1alpha1.NodeStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= nodesFor {
		// The context of a browser may end while others wait.
		ctx, cancel := context.WithTimeout(context.Background(), nodesWithin)
		defer cancel()
		r.list, r.err = read(ctx)
		r.at = time.Now()
	}
	return r.list, r.err
}
