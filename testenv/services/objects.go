package services

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The paths of objects.
const (
	Nodes      = "/api/v1/nodes"
	Namespaces = "/api/v1/namespaces"
	// Services and Slices are in the namespace that the lab uses.
	Services = "/api/v1/namespaces/default/services"
	Slices   = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

// Excluded is the label of a node that must not announce.
const Excluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// writers is the number of parallel requests when writing many objects.
const writers = 8

// createNode creates a ready Node, as its kubelet would.
func (l *Lab) createNode(ctx context.Context, name string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
	if err := l.API.Create(ctx, Nodes, n); err != nil {
		return err
	}
	return l.API.Patch(ctx, Nodes+"/"+name+"/status", map[string]any{"status": corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: l.Address(name).String()}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse}},
	}})
}

// Exclude labels a node so that it does not announce, or removes the label.
func (l *Lab) Exclude(ctx context.Context, node string, excluded bool) error {
	labels := map[string]any{Excluded: nil}
	if excluded {
		labels[Excluded] = ""
	}
	return l.API.Patch(ctx, Nodes+"/"+node, map[string]any{"metadata": map[string]any{"labels": labels}})
}

// Service is a Service of type LoadBalancer, with endpoints on nodes.
type Service struct {
	// Name of the Service, in the namespace default.
	Name string
	// Pool is the pool of its address: [PoolBGP] or [PoolARP].
	Pool string
	// Local is externalTrafficPolicy: Local.
	Local bool
	// Endpoints are the nodes with a ready endpoint.
	Endpoints []string
	// Address, if valid, is written to the status, as if it had been assigned earlier.
	Address netip.Addr
	// Edit changes the object before it is written; may be nil.
	Edit func(*corev1.Service)
}

// object returns the Kubernetes object. It names the pool for both announcers.
func (s Service) object() *corev1.Service {
	no := false
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: "default", Annotations: map[string]string{
			"herald.dev/pool": s.Pool, "metallb.io/address-pool": s.Pool,
		}},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": s.Name},
			Ports:    []corev1.ServicePort{{Port: Port, TargetPort: intstr.FromInt32(serverPort)}},
			// Large runs have more Services than there are node ports.
			AllocateLoadBalancerNodePorts: &no,
		},
	}
	if s.Local {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.Edit != nil {
		s.Edit(o)
	}
	return o
}

// Create creates Services and their EndpointSlices, many in parallel.
func (l *Lab) Create(ctx context.Context, list ...Service) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, s := range list {
		g.Go(func() error {
			if err := l.API.Create(ctx, Services, s.object()); err != nil {
				return err
			}
			if s.Address.IsValid() {
				if err := l.API.Patch(ctx, Services+"/"+s.Name+"/status", assigned(s.Address)); err != nil {
					return err
				}
			}
			return l.API.Create(ctx, Slices, l.endpoints.add(l, s))
		})
	}
	return g.Wait()
}

// assigned returns the status of a Service with the address.
func assigned(a netip.Addr) any {
	vip := corev1.LoadBalancerIPModeVIP
	return map[string]any{"status": corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
		Ingress: []corev1.LoadBalancerIngress{{IP: a.String(), IPMode: &vip}},
	}}}
}

// Remove deletes Services and their EndpointSlices.
func (l *Lab) Remove(ctx context.Context, names ...string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, name := range names {
		g.Go(func() error {
			if err := l.API.Delete(ctx, Services+"/"+name); err != nil {
				return err
			}
			return l.API.Delete(ctx, Slices+"/"+name)
		})
	}
	return g.Wait()
}

// AddressOf waits until a Service has an address.
func (l *Lab) AddressOf(ctx context.Context, service string) (address netip.Addr, err error) {
	err = Eventually(ctx, func() error {
		var s corev1.Service
		if err := l.API.Get(ctx, Services+"/"+service, &s); err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("%s has no address", service)
		}
		address, err = netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
		return err
	})
	return address, err
}
