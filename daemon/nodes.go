package daemon

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/status/page"
)

// nodes returns the nodes of the cluster for the page; nil without a services section or a connection.
func (s *services) nodes() *page.Nodes {
	if s == nil {
		return nil
	}
	k := s.kubernetes.Load()
	if k == nil {
		return nil
	}
	list, err := s.reports.Get(k.cluster.NodeStatuses)
	out := &page.Nodes{List: list, Unknown: text(err)}
	select {
	case <-k.informers.Nodes.Synced():
		out.Ready = make(map[string]bool)
		for n := range k.informers.Nodes.All() {
			out.Ready[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady // the informer keeps the condition only where it is not true
			})
		}
	default: // the Nodes are not known yet
	}
	return out
}
