package service

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// Eligibility is whether a node may announce an address of a Service. The zero value means that it may.
type Eligibility struct {
	// Reason is why it may not, in one short sentence; empty if it may.
	Reason string
	// Failed means that arriving traffic is already lost, so the route must be withdrawn at
	// once. Otherwise the change is planned, and routers get notice first.
	Failed bool
}

// OK reports whether the node may announce the address.
func (v Eligibility) OK() bool { return v == Eligibility{} }

// And combines two conditions: v's reason takes precedence, and the result is failed if either is.
func (v Eligibility) And(w Eligibility) Eligibility {
	if v.Reason == "" {
		return w
	}
	v.Failed = v.Failed || w.Failed
	return v
}

// Planned returns the ineligibility of an address that is withdrawn with notice.
func Planned(format string, args ...any) Eligibility {
	return Eligibility{Reason: fmt.Sprintf(format, args...)}
}

// Failed returns the ineligibility of an address that is withdrawn at once.
func Failed(format string, args ...any) Eligibility {
	return Eligibility{Reason: fmt.Sprintf(format, args...), Failed: true}
}

// Fitness is the rules that exclude nodes from announcing Services, besides the condition NetworkUnavailable.
type Fitness struct {
	// ExcludeCordoned excludes cordoned nodes.
	ExcludeCordoned bool
	// IgnoreExcludeLabel ignores Kubernetes' label that excludes nodes from load balancers.
	IgnoreExcludeLabel bool
	// ExcludeTaints excludes nodes with a taint of one of these keys, for any value and effect.
	ExcludeTaints []string
}

// Fit returns whether a node may announce any Service.
func (f Fitness) Fit(n *corev1.Node) Eligibility {
	// The node has no route to the pods of other nodes.
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	}) {
		return Failed("node %s has the condition %s", n.Name, corev1.NodeNetworkUnavailable)
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded && !f.IgnoreExcludeLabel { // with any value
		return Planned("node %s has the label %s", n.Name, corev1.LabelNodeExcludeBalancers)
	}
	if n.Spec.Unschedulable && f.ExcludeCordoned {
		return Planned("node %s is cordoned", n.Name)
	}
	for _, taint := range n.Spec.Taints {
		if slices.Contains(f.ExcludeTaints, taint.Key) {
			return Planned("node %s has the taint %s", n.Name, taint.Key)
		}
	}
	return Eligibility{}
}

// Selectors select the union of their selections; without selectors, everything.
type Selectors []labels.Selector

// SelectorsOf compiles selectors of a resource.
func SelectorsOf(list []v1alpha1.LabelSelector) (Selectors, error) {
	var out Selectors
	for i := range list {
		s, err := list[i].Selector()
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Match reports whether they select an object with these labels.
func (s Selectors) Match(set map[string]string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(s labels.Selector) bool { return s.Matches(labels.Set(set)) })
}

// Endpoints is the part of an EndpointSlice that decides where its Service is announced.
type Endpoints struct {
	// Family is the family of the endpoints' addresses: proxies forward only to endpoints of the same family.
	Family pool.Family
	// Ready and Terminating are the nodes of ready endpoints, and of endpoints that terminate and still
	// serve: sorted, each once. An endpoint without a node counts as the node "".
	Ready, Terminating []string
}

// EndpointsOf reads a slice. It is not ok for address types that proxies never forward to, such as host names.
func EndpointsOf(s *discoveryv1.EndpointSlice) (e Endpoints, ok bool) {
	switch s.AddressType {
	case discoveryv1.AddressTypeIPv4:
		e.Family = pool.IPv4
	case discoveryv1.AddressTypeIPv6:
		e.Family = pool.IPv6
	default:
		return Endpoints{}, false
	}
	for i := range s.Endpoints {
		node := ""
		if name := s.Endpoints[i].NodeName; name != nil {
			node = *name
		}
		switch c := s.Endpoints[i].Conditions; { // by the API, nil means ready, serving and not terminating
		case c.Ready == nil || *c.Ready:
			e.Ready = append(e.Ready, node)
		case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
			e.Terminating = append(e.Terminating, node)
		}
	}
	for _, nodes := range []*[]string{&e.Ready, &e.Terminating} {
		slices.Sort(*nodes)
		*nodes = slices.Clip(slices.Compact(*nodes))
	}
	return e, true
}

// Rule is where a Service must have an endpoint, so that its addresses are announced. The zero value means None.
type Rule string

// The rules. A Service with the traffic policy Local has the rule OnNode.
const (
	None   Rule = "none" // no endpoint needed
	Any    Rule = "any"  // on any node
	OnNode Rule = "node" // on the node that announces
)

// Backed returns whether the endpoints of a Service let a node announce its addresses of a family. Proxies fall back to
// terminating endpoints while no endpoint is ready (KEP-1669); with the traffic policy Local, this holds per node. So a
// node with only terminating endpoints, while others are ready elsewhere, still serves traffic until the routers have
// acted on the planned withdrawal.
func (r Rule) Backed(node string, family pool.Family, endpoints iter.Seq[Endpoints]) Eligibility {
	if r != Any && r != OnNode {
		return Eligibility{}
	}
	var ready, terminating, readyHere, terminatingHere bool
	for e := range endpoints {
		if e.Family != family {
			continue
		}
		ready, terminating = ready || len(e.Ready) > 0, terminating || len(e.Terminating) > 0
		readyHere, terminatingHere = readyHere || slices.Contains(e.Ready, node), terminatingHere || slices.Contains(e.Terminating, node)
	}
	switch {
	case readyHere, !ready && terminatingHere, r == Any && (ready || terminating):
		return Eligibility{}
	case r == Any:
		return Failed("no ready %s endpoint on any node", family)
	case terminatingHere:
		return Planned("the last %s endpoint on this node is terminating", family)
	}
	return Failed("no ready %s endpoint on this node", family)
}

// Nodes returns the nodes that may announce a Service's addresses of a family with the rule OnNode.
func Nodes(family pool.Family, endpoints iter.Seq[Endpoints]) []string {
	var ready, terminating []string
	for e := range endpoints {
		if e.Family == family {
			ready, terminating = append(ready, e.Ready...), append(terminating, e.Terminating...)
		}
	}
	if len(ready) == 0 {
		return terminating
	}
	return ready
}

// Origin identifies the tenant's Service that a Service was derived from. The zero value means that it is no tenant's.
type Origin struct {
	Tenant  string `json:"tenant,omitempty"`
	Service string `json:"origin,omitempty"` // namespace/name, in the tenant's cluster
}

// OriginOf returns the origin of a derived Service. A Service outside the tenant's namespace has no origin, even if its labels name one.
func OriginOf(s *corev1.Service) Origin {
	tenant := s.Labels[v1alpha1.LabelTenant]
	owner := metav1.GetControllerOfNoCopy(s)
	if tenant == "" || s.Namespace != v1alpha1.TenantNamespace(tenant) || owner == nil {
		return Origin{}
	}
	return Origin{tenant, v1alpha1.ServiceOf(owner.Name)}
}

// Attrs returns the log attributes of the origin; nil if there is none.
func (o Origin) Attrs() []any {
	if o.Tenant == "" {
		return nil
	}
	return []any{"tenant", o.Tenant, "origin", o.Service}
}

// Older compares two objects by age, then by name. The older one takes precedence.
func Older[T metav1.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
