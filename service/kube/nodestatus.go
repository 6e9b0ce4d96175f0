package kube

import (
	"context"
	"errors"
	"log/slog"

	"github.com/herald-vip/herald/api/v1alpha1"
)

const nodeStatuses = "nodestatuses"

// WatchNodeStatus calls set with the NodeStatus of a node, at first and after each change, until ctx ends. It calls set
// with nil while there is none.
func (c *Cluster) WatchNodeStatus(ctx context.Context, log *slog.Logger, node string, set func(*v1alpha1.NodeStatus)) {
	i := newInformerOfOne(c.herald, nodeStatuses, "", node, func(*v1alpha1.NodeStatus) {}, set)
	i.about, i.optional, i.newer = "NodeStatus "+node, true, true
	i.run(ctx, c.trouble(log))
}

// ApplyNodeStatus writes the NodeStatus of a node and replaces all fields of its status. [Cluster.Health] reports failures.
func (c *Cluster) ApplyNodeStatus(ctx context.Context, log *slog.Logger, s *v1alpha1.NodeStatus) error {
	err := c.Apply(ctx, v1alpha1.Group+"/node", s)
	c.trouble(log).note(ctx, nodeStatuses, err)
	return err
}

// NodeStatuses returns the reports of all nodes from the server's cache, which is cheap but may be stale.
func (c *Cluster) NodeStatuses(ctx context.Context) ([]v1alpha1.NodeStatus, error) {
	var list v1alpha1.NodeStatusList
	if err := c.herald.Get().Resource(nodeStatuses).Param("resourceVersion", "0").Do(ctx).Into(&list); err != nil {
		return nil, errors.New(explain(nodeStatuses, err))
	}
	return list.Items, nil
}
