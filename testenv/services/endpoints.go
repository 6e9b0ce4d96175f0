package services

import (
	"context"
	"fmt"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
