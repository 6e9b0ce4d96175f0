package tenant

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Mode is how a Service is served.
type Mode int

// The modes of a Service.
const (
	NotServed Mode = iota
	// ByStatus: a Service of type LoadBalancer, with its VIPs in its status.
	ByStatus
	// ByNodePorts: a Service of type NodePort, with its VIPs in an annotation.
	ByNodePorts
	// ByEndpoints: connections go to the load balancer that its own cluster provides.
	ByEndpoints
	// ByRoute: a backend of a route, without a VIP. Requests arrive at its node ports or at the node ports of its copy.
	ByRoute
)

// ModeOf returns the mode of a Service. The load-balancing cluster serves all Services in scope.
func ModeOf(s *corev1.Service, scope service.Scope) Mode {
	annotated := s.Annotations[AnnotationClass] == ClassKubeLB
	switch {
	case s.DeletionTimestamp != nil:
		return NotServed
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer && annotated:
		return ByEndpoints
	case scope.Ours(s):
		return ByStatus
	case s.Spec.Type == corev1.ServiceTypeNodePort && annotated:
		return ByNodePorts
	}
	return NotServed
}

// NeedsCopy reports whether a backend of a route lacks node ports and so needs a copy.
func NeedsCopy(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeClusterIP && reachable(s)
}

// reachable reports whether a Service can have node ports.
func reachable(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone && len(s.Spec.Selector) > 0
}

// Ask returns the specification of the TCPLoadBalancer of a Service, given its endpoints and its copy, if any. The error
// is a [pool.Refusal] for the Service's author. Nil without an error means that the data is not complete yet.
func Ask(s *corev1.Service, mode Mode, copied *corev1.Service, endpoints iter.Seq[service.Endpoints]) (*v1alpha1.TCPLoadBalancerSpec, error) {
	if mode == ByRoute {
		return askInternal(s, copied, endpoints)
	}
	claim, err := service.Scope{}.ClaimOf(s)
	if err != nil {
		return nil, err
	}
	spec := &v1alpha1.TCPLoadBalancerSpec{
		Origin: v1alpha1.ObjectReference{Namespace: s.Namespace, Name: s.Name},
		Pool:   claim.Pool, Share: claim.Share, Partial: claim.Partial, SourceRanges: slices.Clone(s.Spec.LoadBalancerSourceRanges),
	}
	for _, a := range claim.Addresses {
		spec.Addresses = append(spec.Addresses, a.String())
	}
	for _, f := range claim.Families {
		spec.IPFamilies = append(spec.IPFamilies, f.String())
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinity = corev1.DefaultClientIPServiceAffinitySeconds
		if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			spec.SessionAffinity = *c.ClientIP.TimeoutSeconds
		}
	}
	for i, p := range s.Spec.Ports {
		target := p.NodePort
		if mode == ByEndpoints {
			target = p.Port
		}
		if target == 0 {
			return nil, &pool.Refusal{Reason: pool.InvalidClaim, Message: fmt.Sprintf(
				"port %d has no node port, which the load-balancing cluster needs to reach it: set allocateLoadBalancerNodePorts: true", p.Port)}
		}
		spec.Ports = append(spec.Ports, v1alpha1.LoadBalancerPort{
			Name: p.Name, Protocol: claim.Ports[i].Protocol, Port: p.Port, TargetPort: target,
		})
	}
	switch {
	case mode == ByEndpoints:
		for _, a := range service.StatusAddresses(s) {
			spec.Endpoints = append(spec.Endpoints, a.String())
		}
		slices.Sort(spec.Endpoints)
		if len(spec.Endpoints) == 0 {
			return nil, endpointsMissing(s)
		}
	case s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal:
		spec.Local = true
		spec.Nodes = nodesWith(endpoints, claim.Families)
	}
	return spec, nil
}

// nodesWith returns the nodes with endpoints of these families, sorted.
func nodesWith(endpoints iter.Seq[service.Endpoints], families []pool.Family) (out []string) {
	for _, family := range families {
		out = append(out, service.Nodes(family, endpoints)...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(n string) bool { return n == "" })
}

// endpointsMissing returns why the Service has no usable load balancer of its own; nil if it may get one soon.
func endpointsMissing(s *corev1.Service) error {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.Hostname != "" {
			return &pool.Refusal{Reason: pool.InvalidClaim, Message: fmt.Sprintf(
				"its own load balancer is the name %s, not an address: want a load balancer with an address, or a Service of type NodePort", i.Hostname)}
		}
	}
	return nil
}

// askInternal returns the specification of the TCPLoadBalancer of a backend of routes.
func askInternal(s, copied *corev1.Service, endpoints iter.Seq[service.Endpoints]) (*v1alpha1.TCPLoadBalancerSpec, error) {
	spec := &v1alpha1.TCPLoadBalancerSpec{Origin: v1alpha1.ObjectReference{Namespace: s.Namespace, Name: s.Name}, Internal: true, Partial: true}
	reached := s
	if NeedsCopy(s) {
		reached = copied
	}
	switch {
	case !reachable(s):
		return nil, &pool.Refusal{Reason: pool.InvalidClaim, Message: "it has no cluster IP or no selector, so the load-balancing cluster cannot reach it"}
	case reached == nil:
		return nil, nil
	}
	for _, p := range s.Spec.Ports {
		i := slices.IndexFunc(reached.Spec.Ports, func(r corev1.ServicePort) bool { return r.Name == p.Name && r.NodePort != 0 })
		if i < 0 {
			continue
		}
		port := v1alpha1.LoadBalancerPort{Name: p.Name, Protocol: string(p.Protocol), Port: p.Port, TargetPort: reached.Spec.Ports[i].NodePort}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		spec.Ports = append(spec.Ports, port)
	}
	if len(spec.Ports) == 0 {
		return nil, nil
	}
	for _, f := range s.Spec.IPFamilies {
		spec.IPFamilies = append(spec.IPFamilies, string(f))
	}
	spec.Nodes = nodesWith(endpoints, []pool.Family{pool.IPv4, pool.IPv6})
	// If any node has pods, all nodes forward to them; if none has, the gateway answers with an error at once.
	spec.Local = len(spec.Nodes) == 0 || !NeedsCopy(s) && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if !spec.Local {
		spec.Nodes = nil
	}
	return spec, nil
}
