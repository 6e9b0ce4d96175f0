package daemon

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/status/page"
)

// What nodes tell is read for the page once in nodesFor, however many look at it, and within nodesWithin.
const nodesFor, nodesWithin = 5 * time.Second, 2 * time.Second

// told is what all nodes told when that was last read.
type told struct {
	mu   sync.Mutex
	at   time.Time
	list []v1alpha1.NodeStatus
	err  error
}

// get is that, read anew if it is old. Whoever looks meanwhile waits for the answer.
func (t *told) get(read func(context.Context) ([]v1alpha1.NodeStatus, error)) ([]v1alpha1.NodeStatus, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.at) >= nodesFor {
		// Not that of a browser, which may go while others wait.
		ctx, cancel := context.WithTimeout(context.Background(), nodesWithin)
		defer cancel()
		t.list, t.err = read(ctx)
		t.at = time.Now()
	}
	return t.list, t.err
}

// nodes are those of the cluster, for the page; nil where none are asked for, or there is no connection.
func (s *services) nodes() *page.Nodes {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	cluster, informers := s.cluster, s.informers
	s.mu.Unlock()
	if cluster == nil {
		return nil
	}
	list, err := s.told.get(cluster.NodeStatuses)
	out := &page.Nodes{List: list, Unready: make(map[string]bool), Unknown: text(err)}
	for n := range informers.Nodes.All() {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady { // which is kept where it is not true
				out.Unready[n.Name] = true
			}
		}
	}
	return out
}
