package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/status/page"
)

// What nodes report is read for the page once in nodesFor, however many look at it, and within nodesWithin.
const nodesFor, nodesWithin = 5 * time.Second, 2 * time.Second

// reports are what all nodes reported when that was last read.
type reports struct {
	mu   sync.Mutex
	at   time.Time
	list []v1alpha1.NodeStatus
	err  error
}

// get is that, read anew if it is old. Whoever looks meanwhile waits for the answer.
func (r *reports) get(read func(context.Context) ([]v1alpha1.NodeStatus, error)) ([]v1alpha1.NodeStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= nodesFor {
		// Not that of a browser, which may go while others wait.
		ctx, cancel := context.WithTimeout(context.Background(), nodesWithin)
		defer cancel()
		r.list, r.err = read(ctx)
		r.at = time.Now()
	}
	return r.list, r.err
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
	list, err := s.reports.get(cluster.NodeStatuses)
	out := &page.Nodes{List: list, Unknown: text(err)}
	select {
	case <-informers.Nodes.Synced():
		out.Ready = make(map[string]bool)
		for n := range informers.Nodes.All() {
			out.Ready[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady // which is kept where it is not true
			})
		}
	default: // which Nodes there are is not known yet
	}
	return out
}
