package service

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// Verdict is whether a node announces an address of a Service. The zero value
// is that it does.
type Verdict struct {
	// Reason is why it does not, in one short sentence; empty if it does.
	Reason string
	// Failed: what traffic still comes is lost already, so the announcement has
	// to end at once. Without it the change is planned, and routers are told
	// before it happens.
	Failed bool
}

// OK says whether the node announces the address.
func (v Verdict) OK() bool { return v == Verdict{} }

// And is the verdict if w has its say, too: v's reason comes first, but one
// failure is enough.
func (v Verdict) And(w Verdict) Verdict {
	if v.Reason == "" {
		return w
	}
	v.Failed = v.Failed || w.Failed
	return v
}

// Planned is the verdict that an address is to leave with notice.
func Planned(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...)}
}

// Failed is the verdict that an address cannot be served any more.
func Failed(format string, args ...any) Verdict {
	return Verdict{Reason: fmt.Sprintf(format, args...), Failed: true}
}

// Fitness says what makes a node unfit to announce any Service, besides that it has no route to the pods of others.
type Fitness struct {
	// ExcludeCordoned: that it is cordoned.
	ExcludeCordoned bool
	// IgnoreExcludeLabel: not the label by which Kubernetes excludes nodes from load balancers.
	IgnoreExcludeLabel bool
	// ExcludeTaints are the keys of the taints that do, whatever their values and effects.
	ExcludeTaints []string
}

// Fit is whether a node may announce any Service at all.
func (f Fitness) Fit(n *corev1.Node) Verdict {
	// It has no route to the pods of others.
	if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	}) {
		return Failed("node %s has the condition %s", n.Name, corev1.NodeNetworkUnavailable)
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded && !f.IgnoreExcludeLabel { // whatever its value
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
	return Verdict{}
}

// Selectors select what one of them does; if there are none, everything.
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

// Match says whether they select what has these labels.
func (s Selectors) Match(set map[string]string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(s labels.Selector) bool { return s.Matches(labels.Set(set)) })
}

// Endpoints is what of an EndpointSlice decides where its Service is announced.
type Endpoints struct {
	// Family is that of the endpoints' addresses: a proxy forwards to endpoints
	// of the same family only.
	Family pool.Family
	// Ready and Ending are the nodes of endpoints that are ready, and of those that terminate and go
	// on serving: sorted, each once, and empty for an endpoint on no node.
	Ready, Ending []string
}

// EndpointsOf reads a slice. It is not ok if no traffic is ever forwarded to
// endpoints of its kind, such as host names.
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
		switch c := s.Endpoints[i].Conditions; { // what is not known (nil) is ready, serving and not terminating, says the API
		case c.Ready == nil || *c.Ready:
			e.Ready = append(e.Ready, node)
		case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
			e.Ending = append(e.Ending, node)
		}
	}
	for _, nodes := range []*[]string{&e.Ready, &e.Ending} {
		slices.Sort(*nodes)
		*nodes = slices.Clip(slices.Compact(*nodes))
	}
	return e, true
}

// Rule is where a Service is to have an endpoint for its addresses to be announced. The zero value says the same as None.
type Rule string

// The rules. That of a Service with the traffic policy Local is OnNode.
const (
	None   Rule = "none" // nowhere
	Any    Rule = "any"  // on any node
	OnNode Rule = "node" // on the node that announces
)

// Backed is whether the endpoints of a Service let a node announce its addresses of a family. The proxies
// fall back to endpoints that terminate and go on serving while none is ready (KEP-1669), those of a node while it has
// none that is ready. So with OnNode, and others ready elsewhere, a node has them to leave by: what still comes is
// served until the routers have acted.
func (r Rule) Backed(node string, family pool.Family, endpoints iter.Seq[Endpoints]) Verdict {
	if r != Any && r != OnNode {
		return Verdict{}
	}
	var ready, ending, readyHere, endingHere bool
	for e := range endpoints {
		if e.Family != family {
			continue
		}
		ready, ending = ready || len(e.Ready) > 0, ending || len(e.Ending) > 0
		readyHere, endingHere = readyHere || slices.Contains(e.Ready, node), endingHere || slices.Contains(e.Ending, node)
	}
	switch {
	case readyHere, !ready && endingHere, r == Any && (ready || ending):
		return Verdict{}
	case r == Any:
		return Failed("no ready %s endpoint on any node", family)
	case endingHere:
		return Planned("the last %s endpoint on this node is ending", family)
	}
	return Failed("no ready %s endpoint on this node", family)
}

// Nodes are those that endpoints let announce a Service's addresses of a family with OnNode.
func Nodes(family pool.Family, endpoints iter.Seq[Endpoints]) []string {
	var ready, ending []string
	for e := range endpoints {
		if e.Family == family {
			ready, ending = append(ready, e.Ready...), append(ending, e.Ending...)
		}
	}
	if len(ready) == 0 {
		return ending
	}
	return ready
}
