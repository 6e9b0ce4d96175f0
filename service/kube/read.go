package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Snapshot is what Herald's part of a cluster is at one time.
type Snapshot struct {
	Nodes    []v1alpha1.NodeStatus
	Pools    []v1alpha1.AddressPool
	Services []corev1.Service
	// Writer is the Lease of that name; nil if there is none.
	Writer *coordinationv1.Lease
}

// Snapshot reads that, once, with the Lease of a name in a namespace.
func (c *Cluster) Snapshot(ctx context.Context, namespace, lease string) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var nodes v1alpha1.NodeStatusList
	var pools v1alpha1.AddressPoolList
	var services corev1.ServiceList
	out := &Snapshot{Writer: new(coordinationv1.Lease)}
	err := errors.Join(
		c.herald.Get().Resource(nodeStatuses).Do(ctx).Into(&nodes),
		c.herald.Get().Resource("addresspools").Do(ctx).Into(&pools),
		c.core.Get().Resource("services").Do(ctx).Into(&services),
	)
	held := c.coordination.Get().Namespace(namespace).Resource("leases").Name(lease).Do(ctx).Into(out.Writer)
	if apierrors.IsNotFound(held) {
		out.Writer, held = nil, nil
	}
	if err = errors.Join(err, held); err != nil {
		return nil, fmt.Errorf("ask the Kubernetes API: %w", err)
	}
	out.Nodes, out.Pools, out.Services = nodes.Items, pools.Items, services.Items
	return out, nil
}

// LabelNode gives a node a label; a nil value takes it away.
func (c *Cluster) LabelNode(ctx context.Context, node, label string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{label: value}}})
	if err == nil {
		err = c.send(ctx, c.core.Patch(types.MergePatchType).Resource("nodes").Name(node).Body(patch))
	}
	if err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}
