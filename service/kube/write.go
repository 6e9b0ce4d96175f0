package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// WriteServiceStatus replaces the status of a Service. It returns the new version of
// the Service, trimmed like in the informers. It fails with a conflict if the Service no
// longer has the version read.
func (c *Cluster) WriteServiceStatus(ctx context.Context, read *corev1.Service, s corev1.ServiceStatus) (*corev1.Service, error) {
	now := new(corev1.Service)
	// Lists that a merge patch omits stay unchanged, so nil must be written.
	status := map[string]any{
		"loadBalancer": map[string]any{"ingress": s.LoadBalancer.Ingress},
		"conditions":   s.Conditions,
	}
	if err := writeStatus(ctx, c.core, "services", read, status, now); err != nil {
		return nil, err
	}
	trimService(now)
	return now, nil
}

// WritePoolStatus replaces the status of a pool. It fails with a conflict if the
// pool no longer has the version read.
func (c *Cluster) WritePoolStatus(ctx context.Context, read *v1alpha1.AddressPool, s v1alpha1.AddressPoolStatus) error {
	// Fields that a merge patch omits stay unchanged, so all are written.
	return writeStatus(ctx, c.herald, "addresspools", read, map[string]any{
		"observedGeneration": s.ObservedGeneration, "ipv4": s.IPv4, "ipv6": s.IPv6, "usage": s.Usage,
		"conflicts": s.Conflicts, "conditions": s.Conditions,
	}, new(v1alpha1.AddressPool))
}

// WriteTenantStatus replaces the status of a Tenant. It fails with a conflict if the Tenant no longer has the version read.
func (c *Cluster) WriteTenantStatus(ctx context.Context, read *v1alpha1.Tenant, s v1alpha1.TenantStatus) error {
	return writeStatus(ctx, c.herald, "tenants", read, map[string]any{
		"observedGeneration": s.ObservedGeneration, "nodes": s.Nodes, "services": s.Services, "routes": s.Routes, "addresses": s.Addresses,
		"refused": s.Refused, "conditions": s.Conditions,
	}, new(v1alpha1.Tenant))
}

// WriteLoadBalancerStatus replaces the status of a TCPLoadBalancer, under the same condition.
func (c *Cluster) WriteLoadBalancerStatus(ctx context.Context, read *v1alpha1.TCPLoadBalancer, s v1alpha1.TCPLoadBalancerStatus) error {
	return writeStatus(ctx, c.herald, "tcploadbalancers", read, map[string]any{
		"observedGeneration": s.ObservedGeneration, "addresses": s.Addresses, "conditions": s.Conditions,
	}, new(v1alpha1.TCPLoadBalancer))
}

// WriteRouteStatus replaces the status of an HTTPLoadBalancer, under the same condition.
func (c *Cluster) WriteRouteStatus(ctx context.Context, read *v1alpha1.HTTPLoadBalancer, s v1alpha1.HTTPLoadBalancerStatus) error {
	return writeStatus(ctx, c.herald, "httploadbalancers", read, map[string]any{
		"observedGeneration": s.ObservedGeneration, "hostnames": s.Hostnames, "conditions": s.Conditions,
	}, new(v1alpha1.HTTPLoadBalancer))
}

// writeStatus merges status into the status of an object that still has the version read.
func writeStatus(ctx context.Context, client rest.Interface, resource string, read metav1.Object, status any, now Object) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": read.GetUID(), "resourceVersion": read.GetResourceVersion()},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", Key(read), err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = client.Patch(types.MergePatchType).NamespaceIfScoped(read.GetNamespace(), read.GetNamespace() != "").
		Resource(resource).Name(read.GetName()).SubResource("status").Body(patch).Do(ctx).Into(now)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", Key(read), err)
	}
	return nil
}

// Event is an event about an object.
type Event struct {
	// About is the object, of Kind and APIVersion.
	About            metav1.Object
	Kind, APIVersion string
	// Type is [corev1.EventTypeNormal] or [corev1.EventTypeWarning].
	Type string
	// Reason is one word in CamelCase, Message a sentence.
	Reason, Message string
	// Reporter is the node name of the Herald instance that reports it.
	Reporter string
}

// WriteEvent creates an event, which servers keep for an hour by default. The caller
// must avoid repetitions.
func (c *Cluster) WriteEvent(ctx context.Context, e Event) error {
	now := metav1.Now()
	namespace := cmp.Or(e.About.GetNamespace(), metav1.NamespaceDefault) // as Kubernetes does for objects without a namespace
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: e.About.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{
			Kind: e.Kind, APIVersion: e.APIVersion, Namespace: e.About.GetNamespace(), Name: e.About.GetName(), UID: e.About.GetUID(),
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:              corev1.EventSource{Component: "herald", Host: e.Reporter},
		ReportingController: v1alpha1.Group + "/herald", ReportingInstance: e.Reporter,
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := c.core.Post().Namespace(namespace).Resource("events").Body(event).Do(ctx).Error(); err != nil {
		return fmt.Errorf("write an event about %s: %w", Key(e.About), err)
	}
	return nil
}
