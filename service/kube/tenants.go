package kube

import (
	"context"
	"fmt"
	"log/slog"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// OwnInformers cache the objects of an agent's own cluster.
type OwnInformers struct {
	// Services have their specification and status, and the annotations of Herald and one more.
	Services *Informer[*corev1.Service]
	// Slices are like in [Informers].
	Slices *Informer[*discoveryv1.EndpointSlice]
	// Nodes have their labels, addresses, taints and condition Ready.
	Nodes *Informer[*corev1.Node]
	// Namespaces have their labels.
	Namespaces *Informer[*corev1.Namespace]
	// Routes are routes, Gateways and GatewayClasses.
	Routes UnstructuredInformers
	group
}

// OwnInformers returns the informers of an agent's own cluster. Services keep this annotation besides Herald's; routes are
// the kinds of Routes.
func (c *Cluster) OwnInformers(log *slog.Logger, annotation string, routes []schema.GroupVersionKind) *OwnInformers {
	i := &OwnInformers{
		Services: newInformer(c.core, "services", metav1.ListOptions{}, func(s *corev1.Service) {
			value, ok := s.Annotations[annotation]
			if trimMeta(&s.ObjectMeta); ok {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotation, value)
			}
		}),
		Slices:     newInformer(c.discovery, "endpointslices", metav1.ListOptions{LabelSelector: "!" + corev1.IsHeadlessService}, trimSlice),
		Nodes:      newInformer(c.core, "nodes", metav1.ListOptions{}, trimTenantNode),
		Namespaces: newInformer(c.core, "namespaces", metav1.ListOptions{}, trimNamespace),
	}
	var kinds []informer
	i.Routes, kinds = c.unstructured(routes, metav1.ListOptions{})
	i.group = c.group(log, append(kinds, i.Services, i.Slices, i.Nodes, i.Namespaces)...)
	return i
}

// RemoteInformers cache the agent's objects in the load-balancing cluster.
type RemoteInformers struct {
	LoadBalancers *Informer[*v1alpha1.TCPLoadBalancer]
	Routes        *Informer[*v1alpha1.HTTPLoadBalancer]
	Nodes         *Informer[*v1alpha1.TenantNodes]
	group
}

// RemoteInformers returns the informers of the agent's namespace.
func (c *Cluster) RemoteInformers(log *slog.Logger, namespace string) *RemoteInformers {
	i := &RemoteInformers{
		LoadBalancers: newInformer(c.herald, "tcploadbalancers", metav1.ListOptions{}, func(o *v1alpha1.TCPLoadBalancer) { trimAsked(&o.ObjectMeta) }),
		Routes:        newInformer(c.herald, "httploadbalancers", metav1.ListOptions{}, func(o *v1alpha1.HTTPLoadBalancer) { trimAsked(&o.ObjectMeta) }),
		Nodes:         newInformer(c.herald, "tenantnodes", metav1.ListOptions{}, func(o *v1alpha1.TenantNodes) { trimAsked(&o.ObjectMeta) }),
	}
	i.Routes.optional, i.Routes.newer = true, true
	i.LoadBalancers.namespace, i.Routes.namespace, i.Nodes.namespace = namespace, namespace, namespace
	i.group = c.group(log, i.LoadBalancers, i.Routes, i.Nodes)
	return i
}

// ManagerInformers cache the input and the derived objects of a manager.
type ManagerInformers struct {
	Tenants       *Informer[*v1alpha1.Tenant]
	LoadBalancers *Informer[*v1alpha1.TCPLoadBalancer]
	Routes        *Informer[*v1alpha1.HTTPLoadBalancer]
	TenantNodes   *Informer[*v1alpha1.TenantNodes]
	// Leases are the heartbeats of agents.
	Leases *Informer[*coordinationv1.Lease]
	// Nodes have their addresses and pod CIDRs.
	Nodes *Informer[*corev1.Node]
	Pools *Informer[*v1alpha1.AddressPool]
	// Namespaces are the namespaces of tenants, Services and Slices the derived objects in them. They keep
	// all fields that a manager writes, including owners.
	Namespaces *Informer[*corev1.Namespace]
	Services   *Informer[*corev1.Service]
	Slices     *Informer[*discoveryv1.EndpointSlice]
	// Derived are the derived routes, by kind.
	Derived UnstructuredInformers
	// Classes are the IngressClasses.
	Classes *Informer[*unstructured.Unstructured]
	group
}

// ManagerInformers returns the informers of a manager. lease is the name of the agents' Leases, routes are the kinds of
// derived routes.
func (c *Cluster) ManagerInformers(log *slog.Logger, lease string, routes []schema.GroupVersionKind) *ManagerInformers {
	derived := metav1.ListOptions{LabelSelector: v1alpha1.LabelTenant}
	i := &ManagerInformers{
		Tenants:       newInformer(c.herald, "tenants", metav1.ListOptions{}, func(o *v1alpha1.Tenant) { trimMeta(&o.ObjectMeta) }),
		LoadBalancers: newInformer(c.herald, "tcploadbalancers", metav1.ListOptions{}, func(o *v1alpha1.TCPLoadBalancer) { trimAsked(&o.ObjectMeta) }),
		Routes:        newInformer(c.herald, "httploadbalancers", metav1.ListOptions{}, func(o *v1alpha1.HTTPLoadBalancer) { trimAsked(&o.ObjectMeta) }),
		TenantNodes:   newInformer(c.herald, "tenantnodes", metav1.ListOptions{}, func(o *v1alpha1.TenantNodes) { trimAsked(&o.ObjectMeta) }),
		Leases: newInformer(c.coordination, "leases", metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, lease).String()},
			func(o *coordinationv1.Lease) { trimMeta(&o.ObjectMeta) }),
		Nodes: newInformer(c.core, "nodes", metav1.ListOptions{}, func(n *corev1.Node) {
			trimMeta(&n.ObjectMeta)
			n.Labels, n.Annotations = nil, nil
			n.Spec, n.Status = corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs}, corev1.NodeStatus{Addresses: n.Status.Addresses}
		}),
		Pools: newInformer(c.herald, "addresspools", metav1.ListOptions{}, func(o *v1alpha1.AddressPool) {
			trimMeta(&o.ObjectMeta)
			o.Status = v1alpha1.AddressPoolStatus{} // it changes with each assignment
		}),
		Namespaces: newInformer(c.core, "namespaces", derived, trimNamespace),
		Services:   newInformer(c.core, "services", derived, func(s *corev1.Service) { trimOwned(&s.ObjectMeta) }),
		Slices:     newInformer(c.discovery, "endpointslices", derived, func(s *discoveryv1.EndpointSlice) { trimOwned(&s.ObjectMeta) }),
	}
	var kinds []informer
	i.Derived, kinds = c.unstructured(routes, derived)
	i.Classes = c.unstructuredOf(schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}, metav1.ListOptions{})
	i.group = c.group(log, append(kinds, i.Tenants, i.LoadBalancers, i.Routes, i.TenantNodes, i.Leases, i.Nodes, i.Pools, i.Namespaces, i.Services, i.Slices, i.Classes)...)
	return i
}

// Tenants lists all Tenants once; none if the server does not have the kind or forbids reading it.
func (c *Cluster) Tenants(ctx context.Context) ([]v1alpha1.Tenant, error) {
	var all v1alpha1.TenantList
	err := c.herald.Get().Resource("tenants").Do(ctx).Into(&all)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list Tenants: %w", err)
	}
	return all.Items, nil
}

// trimOwned is trimMeta for objects with owners.
func trimOwned(m *metav1.ObjectMeta) {
	owners := m.OwnerReferences
	trimMeta(m)
	m.OwnerReferences = owners
}

// trimAsked is trimMeta for objects that agents write: their labels and annotations are untrusted.
func trimAsked(m *metav1.ObjectMeta) {
	trimMeta(m)
	m.Labels, m.Annotations = nil, nil
}

func trimTenantNode(n *corev1.Node) {
	trimMeta(&n.ObjectMeta)
	var conditions []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	n.Spec, n.Status = corev1.NodeSpec{Taints: n.Spec.Taints}, corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: conditions}
}
