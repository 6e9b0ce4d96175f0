package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Snapshot is the state of Herald's objects in a cluster at one time.
type Snapshot struct {
	Nodes    []v1alpha1.NodeStatus
	Pools    []v1alpha1.AddressPool
	Services []corev1.Service
	// Ready maps the existing Nodes to their readiness. Reports of other nodes are obsolete, as nothing retracts them.
	Ready map[string]bool
	// Writer is the requested Lease; nil if there is none.
	Writer *coordinationv1.Lease
}

// Snapshot reads the objects once, with the named Lease. Without a name it reads only NodeStatuses and Nodes.
func (c *Cluster) Snapshot(ctx context.Context, namespace, lease string) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var reports v1alpha1.NodeStatusList
	var nodes corev1.NodeList
	var pools v1alpha1.AddressPoolList
	var services corev1.ServiceList
	out := &Snapshot{Writer: new(coordinationv1.Lease), Ready: make(map[string]bool)}
	err := errors.Join(
		c.herald.Get().Resource(nodeStatuses).Do(ctx).Into(&reports),
		c.core.Get().Resource("nodes").Do(ctx).Into(&nodes),
	)
	if lease != "" {
		held := c.coordination.Get().Namespace(namespace).Resource("leases").Name(lease).Do(ctx).Into(out.Writer)
		if apierrors.IsNotFound(held) {
			out.Writer, held = nil, nil
		}
		err = errors.Join(err, held,
			c.herald.Get().Resource("addresspools").Do(ctx).Into(&pools),
			c.core.Get().Resource("services").Do(ctx).Into(&services),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("read from the Kubernetes API: %w", err)
	}
	out.Nodes, out.Pools, out.Services = reports.Items, pools.Items, services.Items
	for _, n := range nodes.Items {
		out.Ready[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	}
	return out, nil
}

// excludedBy is the value of the label that marks it as this program's, which may remove it.
const excludedBy = "kubectl-herald"

// ExcludeNode adds the label to a node that excludes it from load balancers.
func (c *Cluster) ExcludeNode(ctx context.Context, node string) error {
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, corev1.LabelNodeExcludeBalancers, excludedBy)
	if err := c.send(ctx, c.core.Patch(types.MergePatchType).Resource("nodes").Name(node).Body([]byte(patch))); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}

// IncludeNode removes that label, but only with the value of [Cluster.ExcludeNode]: kubeadm sets it on masters.
func (c *Cluster) IncludeNode(ctx context.Context, node string) error {
	path := "/metadata/labels/" + strings.ReplaceAll(corev1.LabelNodeExcludeBalancers, "/", "~1")
	patch := fmt.Sprintf(`[{"op": "test", "path": %q, "value": %q}, {"op": "remove", "path": %[1]q}]`, path, excludedBy)
	if err := c.send(ctx, c.core.Patch(types.JSONPatchType).Resource("nodes").Name(node).Body([]byte(patch))); err != nil {
		return fmt.Errorf("node %s has no label %s=%s to remove: %w", node, corev1.LabelNodeExcludeBalancers, excludedBy, err)
	}
	return nil
}
