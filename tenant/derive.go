package tenant

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/rendezvous"
	"github.com/herald-vip/herald/service"
)

// Derived holds the objects derived from a TCPLoadBalancer.
type Derived struct {
	Service *corev1.Service
	// Slices hold the endpoints, one slice per family.
	Slices []*discoveryv1.EndpointSlice
}

// Backends are the possible targets of connections.
type Backends struct {
	Nodes []Node // by name
	// Answers reports whether a node answers probes.
	Answers func(node string) bool
	// Limit is the maximum of nodes per Service.
	Limit int
}

// Derive returns the Service and the EndpointSlices of a TCPLoadBalancer that [Limits.Check] accepts. The Service has no
// selector, so no other controller writes slices for it. Endpoints name no node and externalTrafficPolicy is Cluster,
// so that Kubernetes takes no endpoint for a local one.
func Derive(tenant string, lb *v1alpha1.TCPLoadBalancer, b Backends) Derived {
	lb = servable(lb, b)
	meta := metav1.ObjectMeta{
		Namespace: lb.Namespace, Name: DerivedName(lb.Name), Labels: map[string]string{v1alpha1.LabelTenant: tenant},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "TCPLoadBalancer", Name: lb.Name, UID: lb.UID, Controller: new(true),
		}},
	}
	s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new(string(derivedClass)), AllocateLoadBalancerNodePorts: new(false),
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster, SessionAffinity: corev1.ServiceAffinityNone,
		LoadBalancerSourceRanges: slices.Clone(lb.Spec.SourceRanges), IPFamilyPolicy: new(policyOf(&lb.Spec)),
	}}
	s.Annotations = annotationsOf(tenant, &lb.Spec)
	if lb.Spec.Internal {
		s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, nil, nil, ""
		s.Spec.LoadBalancerSourceRanges, s.Annotations = nil, nil
	}
	for _, f := range lb.Spec.IPFamilies {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f))
	}
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack { // the API server adds the other family if the cluster has it
		s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
	}
	if seconds := lb.Spec.SessionAffinity; seconds > 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	var ports []discoveryv1.EndpointPort
	for _, p := range lb.Spec.Ports {
		protocol := corev1.Protocol(p.Protocol)
		var app *string
		if p.AppProtocol != "" {
			app = &p.AppProtocol
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: p.Name, Protocol: protocol, AppProtocol: app, Port: p.Port, TargetPort: intstr.FromInt32(p.TargetPort),
		})
		ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, AppProtocol: app, Port: &p.TargetPort})
	}
	endpoints := endpointsOf(lb, b)
	out := Derived{Service: s}
	for _, family := range lb.Spec.IPFamilies {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), AddressType: discoveryv1.AddressType(family), Ports: ports}
		slice.Name = sliceName(meta.Name, family)
		maps.Copy(slice.Labels, map[string]string{discoveryv1.LabelServiceName: meta.Name, discoveryv1.LabelManagedBy: ManagerName + "." + v1alpha1.Group})
		for _, e := range endpoints {
			if e.Is4() == (family == string(corev1.IPv4Protocol)) {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses:  []string{e.String()},
					Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				})
			}
		}
		out.Slices = append(out.Slices, slice)
	}
	return out
}

// servable returns lb without the families that no endpoint has, if lb accepts a part of its families.
func servable(lb *v1alpha1.TCPLoadBalancer, b Backends) *v1alpha1.TCPLoadBalancer {
	all := ownEndpoints(lb)
	if len(lb.Spec.Endpoints) == 0 {
		for _, n := range b.Nodes { // including nodes that do not answer
			all = append(all, n.Addrs...)
		}
	}
	available := func(family string) bool {
		return slices.ContainsFunc(all, func(a netip.Addr) bool { return a.Is4() == (family == string(corev1.IPv4Protocol)) })
	}
	if !lb.Spec.Partial || !slices.ContainsFunc(lb.Spec.IPFamilies, available) {
		return lb
	}
	out := lb.DeepCopy()
	out.Spec.IPFamilies = slices.DeleteFunc(out.Spec.IPFamilies, func(f string) bool { return !available(f) })
	return out
}

func policyOf(spec *v1alpha1.TCPLoadBalancerSpec) corev1.IPFamilyPolicy {
	switch {
	case len(spec.IPFamilies) < 2:
		return corev1.IPFamilyPolicySingleStack
	case spec.Partial:
		return corev1.IPFamilyPolicyPreferDualStack
	}
	return corev1.IPFamilyPolicyRequireDualStack
}

func annotationsOf(tenant string, spec *v1alpha1.TCPLoadBalancerSpec) map[string]string {
	out := make(map[string]string)
	if len(spec.Addresses) > 0 {
		out[service.AnnotationAddresses] = strings.Join(spec.Addresses, ",")
	}
	if spec.Pool != "" {
		out[service.AnnotationPool] = spec.Pool
	}
	if spec.Share != "" { // tenants do not share VIPs with one another
		out[service.AnnotationShare] = tenant + "/" + spec.Share
	}
	return out
}

// Unserved names the families that a TCPLoadBalancer asks for but has no endpoints of; empty if lb accepts a part of
// its families and has endpoints of one.
func (d Derived) Unserved(lb *v1alpha1.TCPLoadBalancer) string {
	var without []string
	for _, s := range d.Slices {
		if len(s.Endpoints) == 0 {
			without = append(without, string(s.AddressType))
		}
	}
	if lb.Spec.Partial && len(without) < len(d.Slices) {
		return ""
	}
	return strings.Join(without, " and ")
}

// endpointsOf returns the addresses that receive connections.
func endpointsOf(lb *v1alpha1.TCPLoadBalancer, b Backends) (out []netip.Addr) {
	if len(lb.Spec.Endpoints) > 0 {
		return ownEndpoints(lb)
	}
	nodes := b.Nodes
	if lb.Spec.Local {
		nodes = filter(nodes, func(n Node) bool { _, found := slices.BinarySearch(lb.Spec.Nodes, n.Name); return found })
	}
	nodes = unlessEmpty(nodes, func(n Node) bool { return n.Ready })
	nodes = unlessEmpty(nodes, func(n Node) bool { return b.Answers(n.Name) })
	for _, n := range choose(nodes, lb.Name, b.Limit) {
		out = append(out, n.Addrs...)
	}
	return out
}

// ownEndpoints returns the addresses of the tenant's own load balancer.
func ownEndpoints(lb *v1alpha1.TCPLoadBalancer) (out []netip.Addr) {
	for _, text := range lb.Spec.Endpoints {
		if addr, err := netip.ParseAddr(text); err == nil { // Check refuses invalid ones
			out = append(out, addr.Unmap())
		}
	}
	return out
}

func filter(nodes []Node, keep func(Node) bool) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !keep(n) })
}

// unlessEmpty filters nodes, or returns all if none would be left. A report that all nodes are down is more likely wrong
// than right, and trying them costs nothing.
func unlessEmpty(nodes []Node, keep func(Node) bool) []Node {
	if kept := filter(nodes, keep); len(kept) > 0 {
		return kept
	}
	return nodes
}

// choose returns at most limit nodes, sorted by name. It spreads them evenly over the zones, and within a zone takes the
// largest weights (rendezvous hashing: Thaler and Ravishankar, 1998). When a node disappears, one other replaces it.
func choose(nodes []Node, key string, limit int) []Node {
	if len(nodes) <= limit {
		return nodes
	}
	byWeight := slices.Clone(nodes)
	slices.SortFunc(byWeight, func(a, b Node) int {
		return cmp.Or(-cmp.Compare(rendezvous.WeightOf(a.Name, []byte(key)), rendezvous.WeightOf(b.Name, []byte(key))), cmp.Compare(a.Name, b.Name))
	})
	// The first node of every zone comes before the second of any.
	rank, seen := make(map[string]int), make(map[string]int)
	for _, n := range byWeight {
		rank[n.Name] = seen[n.Zone]
		seen[n.Zone]++
	}
	slices.SortStableFunc(byWeight, func(a, b Node) int { return cmp.Compare(rank[a.Name], rank[b.Name]) })
	chosen := byWeight[:limit]
	slices.SortFunc(chosen, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

// SameService reports whether a Service equals the derived one, ignoring additions by the API server and the writer.
func SameService(current, want *corev1.Service) bool {
	trimmed := &corev1.Service{ObjectMeta: sameMeta(current.ObjectMeta), Spec: corev1.ServiceSpec{
		Type: current.Spec.Type, LoadBalancerClass: current.Spec.LoadBalancerClass, AllocateLoadBalancerNodePorts: current.Spec.AllocateLoadBalancerNodePorts,
		ExternalTrafficPolicy: current.Spec.ExternalTrafficPolicy, SessionAffinity: current.Spec.SessionAffinity, SessionAffinityConfig: current.Spec.SessionAffinityConfig,
		LoadBalancerSourceRanges: current.Spec.LoadBalancerSourceRanges, IPFamilyPolicy: current.Spec.IPFamilyPolicy, IPFamilies: current.Spec.IPFamilies, Ports: current.Spec.Ports,
	}}
	if *want.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack && len(current.Spec.IPFamilies) > 0 {
		trimmed.Spec.IPFamilies = current.Spec.IPFamilies[:1]
	}
	return equality.Semantic.DeepEqual(trimmed, want)
}

// SameSlice reports whether a slice equals the derived one, ignoring additions by the API server.
func SameSlice(current, want *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(&discoveryv1.EndpointSlice{ObjectMeta: sameMeta(current.ObjectMeta), AddressType: current.AddressType, Ports: current.Ports, Endpoints: current.Endpoints}, want)
}

func sameMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, OwnerReferences: m.OwnerReferences}
}
