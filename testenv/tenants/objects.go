package tenants

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/manifests"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/services"
)

// The ports of the server on each node of a tenant; see package echo.
const (
	serverPort = 8080
	// ServerTLSPort is the port for TLS.
	ServerTLSPort = 8443
)

// mountSecret writes the values of the agent's Secret to the files that the agent
// reads, as the kubelet does.
func (c *Cluster) mountSecret(ctx context.Context) error {
	var s struct{ Data map[string]string }
	if err := c.API.Get(ctx, "/api/v1/namespaces/herald-system/secrets/"+manifests.LoadBalancerSecret, &s); err != nil {
		return err
	}
	for key, value := range s.Data {
		text, err := base64.StdEncoding.DecodeString(value)
		if err := errors.Join(err, c.lab.write(string(text), c.Name+"-secret", key)); err != nil {
			return err
		}
	}
	return nil
}

// Expose creates a Service of type LoadBalancer with ready endpoints on all nodes, the
// nodes' servers. Edit changes it before, and may select another server by targetPort;
// it may be nil.
func (c *Cluster) Expose(ctx context.Context, name string, edit func(*corev1.Service)) error {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: services.Port, Protocol: corev1.ProtocolTCP}}},
	}
	if edit != nil {
		edit(s)
	}
	var ports []discoveryv1.EndpointPort
	for _, p := range s.Spec.Ports {
		ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(cmp.Or(p.TargetPort.IntVal, serverPort))})
	}
	names := []string{name}
	if len(s.Spec.Selector) > 0 { // a copy of the Service has one, too
		names = append(names, tenant.CopyName(name))
	}
	var errs []error
	for _, name := range names {
		for _, family := range families() {
			errs = append(errs, c.API.Create(ctx, services.Slices, &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: sliceName(name, family), Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: family, Endpoints: c.endpoints(family, c.Nodes()...), Ports: ports,
			}))
		}
	}
	return errors.Join(append(errs, c.API.Create(ctx, services.Services, s))...)
}

func families() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

func sliceName(service string, family discoveryv1.AddressType) string {
	return service + "-" + strings.ToLower(string(family))
}

func (c *Cluster) endpoints(family discoveryv1.AddressType, nodes ...string) []discoveryv1.Endpoint {
	out := []discoveryv1.Endpoint{}
	for _, node := range nodes {
		addr := c.Address(node)
		if family == discoveryv1.AddressTypeIPv6 {
			addr = c.Address6(node)
		}
		out = append(out, discoveryv1.Endpoint{
			Addresses: []string{addr.String()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)},
		})
	}
	return out
}

// SetEndpoints places a Service's endpoints on these nodes, once the server of each
// answers, like the kubelet's readiness probe.
func (c *Cluster) SetEndpoints(ctx context.Context, service string, nodes ...string) error {
	for _, node := range nodes {
		server := netip.AddrPortFrom(c.Address(node), serverPort).String()
		if err := services.Eventually(ctx, func() error { return c.lab.Node(node).Reaches(ctx, server) }); err != nil {
			return fmt.Errorf("the server of %s: %w", node, err)
		}
	}
	var errs []error
	for _, family := range families() {
		errs = append(errs, c.API.Patch(ctx, services.Slices+"/"+sliceName(service, family), map[string]any{"endpoints": c.endpoints(family, nodes...)}))
	}
	return errors.Join(errs...)
}

// Remove deletes a Service and its EndpointSlices.
func (c *Cluster) Remove(ctx context.Context, name string) error {
	errs := []error{c.API.Delete(ctx, services.Services+"/"+name)}
	for _, family := range families() {
		errs = append(errs, c.API.Delete(ctx, services.Slices+"/"+sliceName(name, family)))
	}
	return errors.Join(errs...)
}

// VIP waits until a Service has a VIP, and returns the first.
func (c *Cluster) VIP(ctx context.Context, name string) (netip.Addr, error) {
	all, err := c.VIPs(ctx, name)
	if err != nil {
		return netip.Addr{}, err
	}
	return all[0], nil
}

// VIPs waits until a Service has VIPs.
func (c *Cluster) VIPs(ctx context.Context, name string) (vips []netip.Addr, err error) {
	err = services.Eventually(ctx, func() error {
		var s corev1.Service
		if err := c.API.Get(ctx, services.Services+"/"+name, &s); err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("%s has no VIP: %+v", name, s.Status.Conditions)
		}
		vips = service.StatusAddresses(&s)
		return nil
	})
	return vips, err
}
