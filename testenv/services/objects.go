package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

// CreateNode creates a ready Node, as its kubelet would.
func (a *API) CreateNode(ctx context.Context, name string, addresses ...netip.Addr) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}}
	if err := a.Create(ctx, Nodes, n); err != nil {
		return err
	}
	var internal []corev1.NodeAddress
	for _, address := range addresses {
		internal = append(internal, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address.String()})
	}
	return a.Patch(ctx, Nodes+"/"+name+"/status", map[string]any{"status": corev1.NodeStatus{
		Addresses:  internal,
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

// Conditions are the conditions of an endpoint.
type Conditions struct{ Ready, Serving, Terminating bool }

// Ready returns the conditions of an endpoint in service.
func Ready() Conditions { return Conditions{Ready: true, Serving: true} }

// NotReady returns the conditions of a failed endpoint.
func NotReady() Conditions { return Conditions{} }

// Draining returns the conditions of an endpoint that is terminating but still serves (KEP-1669).
func Draining() Conditions { return Conditions{Serving: true, Terminating: true} }

// endpoints are the lab's endpoints by Service. The lab replaces the EndpointSlice
// controller, and writes one slice per Service, with the Service's name.
type endpoints struct {
	mu        sync.Mutex
	byService map[string][]discoveryv1.Endpoint
}

// add returns the slice of a new Service.
func (e *endpoints) add(l *Lab, s Service) *discoveryv1.EndpointSlice {
	list := []discoveryv1.Endpoint{}
	for _, node := range s.Endpoints {
		list = append(list, endpoint(l, node, Ready()))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byService == nil {
		e.byService = make(map[string][]discoveryv1.Endpoint)
	}
	e.byService[s.Name] = list
	port := int32(serverPort)
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: s.Name, Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   slices.Clone(list),
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	}
}

// endpoint returns the endpoint on a node: its pod is the node's server.
func endpoint(l *Lab, node string, c Conditions) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{l.Address(node).String()},
		NodeName:   &node,
		Conditions: discoveryv1.EndpointConditions{Ready: &c.Ready, Serving: &c.Serving, Terminating: &c.Terminating},
	}
}

// SetEndpoint gives a Service's endpoint on a node these conditions, or adds an endpoint.
func (l *Lab) SetEndpoint(ctx context.Context, service, node string, c Conditions) error {
	return l.patchEndpoints(ctx, service, node, func(list []discoveryv1.Endpoint) []discoveryv1.Endpoint {
		return append(list, endpoint(l, node, c))
	})
}

// RemoveEndpoint removes a Service's endpoint from a node.
func (l *Lab) RemoveEndpoint(ctx context.Context, service, node string) error {
	return l.patchEndpoints(ctx, service, node, func(list []discoveryv1.Endpoint) []discoveryv1.Endpoint { return list })
}

// patchEndpoints calls change with a Service's endpoints except the node's, and writes the result.
func (l *Lab) patchEndpoints(ctx context.Context, service, node string, change func([]discoveryv1.Endpoint) []discoveryv1.Endpoint) error {
	l.endpoints.mu.Lock()
	defer l.endpoints.mu.Unlock()
	list, ok := l.endpoints.byService[service]
	if !ok {
		return fmt.Errorf("the lab has written no Service %q", service)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(e discoveryv1.Endpoint) bool { return *e.NodeName == node })
	list = change(list)
	if err := l.API.Patch(ctx, Slices+"/"+service, map[string]any{"endpoints": list}); err != nil {
		return err
	}
	l.endpoints.byService[service] = list
	return nil
}
