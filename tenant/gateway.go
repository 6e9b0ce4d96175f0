package tenant

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/pool"
)

// Parent is a resolved reference of a route to a Gateway of the class.
type Parent struct {
	Ref       map[string]any
	Gateway   string   // namespace/name
	Listeners []string // names of the listeners that accept the route
	Hostnames []string // hostnames that reach the route
	ByName    bool     // the name of the Gateway also reaches it
	// Reason and Message say why no listener accepts it; empty if one does.
	Reason, Message string
}

// Gateways looks up the Gateways of a tenant's cluster by namespace/name, and the labels of namespaces.
type Gateways struct {
	Get      func(key string) (*unstructured.Unstructured, bool)
	LabelsOf func(namespace string) map[string]string
}

// Parents returns the parents of a route. A route without parents is not served.
func (g Gateways) Parents(route *unstructured.Unstructured) (out []Parent) {
	if route.GetDeletionTimestamp() != nil {
		return nil
	}
	spec := object(route.Object["spec"])
	for _, ref := range objects(spec["parentRefs"]) {
		p := Parent{Ref: ref, Gateway: cmp.Or(text(ref["namespace"]), route.GetNamespace()) + "/" + text(ref["name"])}
		gateway, ok := g.Get(p.Gateway)
		if kind := text(ref["kind"]); !ok || !Serves(gateway) || kind != "" && kind != KindGateway {
			continue
		}
		g.attach(&p, gateway, route, convert[[]string](spec["hostnames"]))
		out = append(out, p)
	}
	return out
}

// attach finds the listeners that accept a route.
func (g Gateways) attach(p *Parent, gateway, route *unstructured.Unstructured, hostnames []string) {
	p.Reason, p.Message = "NoMatchingParent", "the Gateway has no such listener"
	if len(hostnames) == 0 {
		hostnames = []string{""}
	}
	for _, l := range objects(object(gateway.Object["spec"])["listeners"]) {
		section, port := text(p.Ref["sectionName"]), p.Ref["port"]
		if section != "" && section != text(l["name"]) || port != nil && fmt.Sprint(port) != fmt.Sprint(l["port"]) {
			continue
		}
		if !g.allows(l, gateway, route) {
			if len(p.Listeners) == 0 && p.Reason == "NoMatchingParent" {
				p.Reason, p.Message = "NotAllowedByListeners", "no listener of the Gateway allows routes of this kind from this namespace"
			}
			continue
		}
		taken := false
		for _, asked := range hostnames {
			name, ok := intersection(text(l["hostname"]), asked)
			switch {
			case !ok:
				continue
			case name == "":
				p.ByName = true
			case !slices.Contains(p.Hostnames, name):
				p.Hostnames = append(p.Hostnames, name)
			}
			taken = true
		}
		if taken {
			p.Listeners, p.Reason, p.Message = append(p.Listeners, text(l["name"])), "", ""
		} else if len(p.Listeners) == 0 {
			p.Reason, p.Message = "NoMatchingListenerHostname", "no listener of the Gateway has a hostname of the route"
		}
	}
}

// kindsOf returns the route kinds that the protocol of a listener supports.
func kindsOf(listener map[string]any) []string {
	switch text(listener["protocol"]) {
	case "HTTP", "HTTPS":
		return []string{"HTTPRoute", "GRPCRoute"}
	case "TLS":
		return []string{"TLSRoute"}
	}
	return nil
}

// allowedKinds returns the supported route kinds that a listener allows; not ok if it allows unsupported ones.
func allowedKinds(listener map[string]any) (kinds []string, ok bool) {
	supported := kindsOf(listener)
	asked := objects(object(listener["allowedRoutes"])["kinds"])
	if len(asked) == 0 {
		return supported, true
	}
	for _, k := range asked {
		if kind := text(k["kind"]); slices.Contains(supported, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, len(kinds) == len(asked)
}

// allows reports whether a listener accepts routes of this kind from this namespace.
func (g Gateways) allows(listener map[string]any, gateway, route *unstructured.Unstructured) bool {
	if kinds, _ := allowedKinds(listener); !slices.Contains(kinds, route.GetKind()) {
		return false
	}
	namespaces := object(object(listener["allowedRoutes"])["namespaces"])
	switch text(namespaces["from"]) {
	case "All":
		return true
	case "Selector":
		s := convert[*metav1.LabelSelector](namespaces["selector"])
		selector, err := metav1.LabelSelectorAsSelector(s)
		return err == nil && selector.Matches(labels.Set(g.LabelsOf(route.GetNamespace())))
	case "", "Same":
		return route.GetNamespace() == gateway.GetNamespace()
	}
	return false
}

// intersection returns the hostname that matches both a and b; not ok if there is none. Either may be a wildcard, and an
// empty one matches any hostname.
func intersection(a, b string) (string, bool) {
	covers := func(wide, narrow string) bool {
		suffix, wild := strings.CutPrefix(wide, "*")
		return wide == "" || wild && strings.HasSuffix(narrow, suffix) && len(narrow) > len(suffix)
	}
	switch {
	case a == b || covers(a, b):
		return b, true
	case covers(b, a):
		return a, true
	}
	return "", false
}

// parentStatus is an entry of a route's status.parents, listenerStatus one of a Gateway's status.listeners.
type parentStatus struct {
	ParentRef      map[string]any     `json:"parentRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions,omitempty"`
}

type listenerStatus struct {
	Name           string             `json:"name"`
	SupportedKinds []map[string]any   `json:"supportedKinds"`
	AttachedRoutes int                `json:"attachedRoutes"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// dated sets generation and time of the conditions now. A condition with unchanged status keeps its time from before.
func dated(before, now []metav1.Condition, generation int64, at time.Time) []metav1.Condition {
	for i := range now {
		now[i].ObservedGeneration, now[i].LastTransitionTime = generation, metav1.NewTime(at.Truncate(time.Second))
		if prev := meta.FindStatusCondition(before, now[i].Type); prev != nil && prev.Status == now[i].Status {
			now[i].LastTransitionTime = prev.LastTransitionTime
		}
	}
	return now
}

// condition returns a condition with the status True or False.
func condition(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// served returns the condition Ready of the current generation; nil if there is none yet.
func served(lb *v1alpha1.HTTPLoadBalancer) *metav1.Condition {
	if lb == nil || lb.Status.ObservedGeneration != lb.Generation {
		return nil
	}
	return meta.FindStatusCondition(lb.Status.Conditions, ConditionReady)
}

// AnswerToRoute returns the status of a route of the Gateway API. refused is the reason that it is not requested, lb its
// HTTPLoadBalancer (nil if none), and timeout names the party that does not answer. Entries of other controllers stay.
func AnswerToRoute(o *unstructured.Unstructured, parents []Parent, refused error, lb *v1alpha1.HTTPLoadBalancer, timeout string, now time.Time) map[string]any {
	before, out := []parentStatus{}, []parentStatus{}
	for _, p := range convert[[]parentStatus](object(o.Object["status"])["parents"]) {
		if p.ControllerName == Controller {
			before = append(before, p)
		} else {
			out = append(out, p)
		}
	}
	for _, p := range parents {
		status := parentStatus{ParentRef: p.Ref, ControllerName: Controller}
		if i := slices.IndexFunc(before, func(b parentStatus) bool {
			return equality.Semantic.DeepEqual(b.ParentRef, convert[map[string]any](p.Ref))
		}); i >= 0 {
			status.Conditions = before[i].Conditions
		}
		status.Conditions = dated(status.Conditions, conditionsFor(status.Conditions, p, refused, refusedBackend(o), lb, timeout), o.GetGeneration(), now)
		out = append(out, status)
	}
	return map[string]any{"parents": out}
}

// conditionsFor returns the conditions of a route for one of its parents, given the previous ones. refused is the reason
// that the route is not served, without the reason that one of its backends is not.
func conditionsFor(before []metav1.Condition, p Parent, refused, without error, lb *v1alpha1.HTTPLoadBalancer, timeout string) []metav1.Condition {
	if p.Reason != "" {
		refused = refuse(pool.Reason(p.Reason), "%s", p.Message)
	}
	c := outcome(refused, timeout, served(lb))
	if c == nil {
		return before
	}
	var theirs []metav1.Condition // the gateway's, of the current generation
	if served(lb) != nil && refused == nil {
		theirs = slices.DeleteFunc(slices.Clone(lb.Status.Conditions), func(c metav1.Condition) bool { return c.Type == ConditionReady })
	}
	if without != nil && (c.Status != metav1.ConditionFalse || c.Reason == ReasonNoNodes) {
		c = outcome(without, "", nil)
	}
	switch refs := c.Reason == string(reasonKind) || c.Reason == string(reasonPermitted); {
	case len(theirs) > 0:
	case c.Status == metav1.ConditionFalse:
		theirs = []metav1.Condition{condition(condAccepted, true, condAccepted, ""), condition(condResolved, true, condResolved, "")}
		if refs {
			theirs[1] = condition(condResolved, false, c.Reason, c.Message)
		} else {
			theirs[0] = condition(condAccepted, false, c.Reason, c.Message)
		}
	default: // the gateway has not reported
		theirs = slices.DeleteFunc(slices.Clone(before), func(c metav1.Condition) bool { return c.Type == ConditionServed })
	}
	if r := outcome(without, "", nil); r != nil {
		theirs = append(slices.DeleteFunc(theirs, func(c metav1.Condition) bool { return c.Type == condResolved }), condition(condResolved, false, r.Reason, r.Message))
	}
	return append(theirs, *c)
}

// AnswerToGateway returns the status of a Gateway of the class. attached counts the routes per listener name; for the
// other parameters see [AnswerToRoute].
func AnswerToGateway(g *unstructured.Unstructured, attached map[string]int, refused error, lb *v1alpha1.HTTPLoadBalancer, timeout string, now time.Time) map[string]any {
	current := object(g.Object["status"])
	ready := served(lb)
	programmed := ready != nil && ready.Status == metav1.ConditionTrue
	reason, message := "Pending", "the load-balancing cluster has not answered yet"
	switch {
	case refused != nil:
		programmed, reason, message = false, "Invalid", refused.Error()
	case programmed:
		reason, message = condProgrammed, "the load-balancing cluster serves it"
	case ready != nil && ready.Status == metav1.ConditionFalse:
		reason, message = "Invalid", ready.Message
	case timeout != "":
		message = timeout
	}
	unsupported := 0
	before, listeners := convert[[]listenerStatus](current["listeners"]), []listenerStatus{}
	for _, l := range objects(object(g.Object["spec"])["listeners"]) {
		s := listenerStatus{Name: text(l["name"]), SupportedKinds: []map[string]any{}, AttachedRoutes: attached[text(l["name"])]}
		kinds, known := allowedKinds(l)
		for _, kind := range kinds {
			s.SupportedKinds = append(s.SupportedKinds, map[string]any{"group": GatewayKind("").Group, "kind": kind})
		}
		accepted, resolved := condition(condAccepted, true, condAccepted, ""), condition(condResolved, true, condResolved, "")
		if kindsOf(l) == nil {
			unsupported++
			accepted = condition(condAccepted, false, "UnsupportedProtocol", "want HTTP, HTTPS or TLS")
		}
		if !known {
			resolved = condition(condResolved, false, "InvalidRouteKinds", "it allows route kinds that its protocol does not support")
		}
		var prev []metav1.Condition
		if i := slices.IndexFunc(before, func(b listenerStatus) bool { return b.Name == s.Name }); i >= 0 {
			prev = before[i].Conditions
		}
		serves := condition(condProgrammed, programmed, reason, message)
		if !known || kindsOf(l) == nil {
			serves = condition(condProgrammed, false, "Invalid", "")
		}
		s.Conditions = dated(prev, []metav1.Condition{accepted, resolved, serves}, g.GetGeneration(), now)
		listeners = append(listeners, s)
	}
	accepted, serves := condition(condAccepted, true, condAccepted, ""), condition(condProgrammed, programmed, reason, message)
	if unsupported > 0 {
		accepted = condition(condAccepted, unsupported < len(listeners), "ListenersNotValid", "a listener has an unsupported protocol")
	}
	if accepted.Status == metav1.ConditionFalse {
		serves = condition(condProgrammed, false, "Invalid", accepted.Message)
	}
	conditions := dated(convert[[]metav1.Condition](current["conditions"]), []metav1.Condition{accepted, serves}, g.GetGeneration(), now)
	status := map[string]any{"conditions": conditions, "listeners": listeners, "addresses": current["addresses"]}
	if lb != nil && len(lb.Status.Hostnames) > 0 {
		status["addresses"] = []map[string]any{{"type": "Hostname", "value": lb.Status.Hostnames[0]}}
	}
	return status
}

// AnswerToClass returns the status of a GatewayClass of this controller.
func AnswerToClass(c *unstructured.Unstructured, now time.Time) map[string]any {
	before := convert[[]metav1.Condition](object(c.Object["status"])["conditions"])
	accepted := []metav1.Condition{condition(condAccepted, true, condAccepted, "the agent reports its Gateways to the load-balancing cluster")}
	return map[string]any{"conditions": dated(before, accepted, c.GetGeneration(), now)}
}

// AnswerToIngress returns the status of an Ingress: its assigned name as the load balancer's hostname. Without a name the
// status does not change; an Ingress that has left the class loses the name.
func AnswerToIngress(o *unstructured.Unstructured, lb *v1alpha1.HTTPLoadBalancer) map[string]any {
	current := object(object(o.Object["status"])["loadBalancer"])
	if lb != nil && len(lb.Status.Hostnames) > 0 {
		names := []any{map[string]any{"hostname": lb.Status.Hostnames[0]}}
		switch {
		case Serves(o):
			current = map[string]any{"ingress": names}
		case equality.Semantic.DeepEqual(current["ingress"], names):
			current = nil
		}
	}
	return map[string]any{"loadBalancer": current}
}

// IngressTrouble returns reason and message why an Ingress is not served; empty if it is served or not answered yet.
func IngressTrouble(refused error, lb *v1alpha1.HTTPLoadBalancer, timeout string) (reason, message string) {
	if c := outcome(refused, timeout, served(lb)); c != nil && (c.Status == metav1.ConditionFalse || timeout != "") {
		return c.Reason, c.Message
	}
	return "", ""
}

// SameStatus reports whether an object already has this status.
func SameStatus(o *unstructured.Unstructured, status map[string]any) bool {
	return includes(convert[any](o.Object["status"]), convert[any](status))
}

// Attached counts the routes that each listener of a Gateway accepts.
func (g Gateways) Attached(gateway string, routes iter.Seq[*unstructured.Unstructured]) map[string]int {
	out := make(map[string]int)
	for r := range routes {
		taken := make(map[string]bool)
		for _, p := range g.Parents(r) {
			for _, l := range p.Listeners {
				if p.Gateway == gateway && !taken[l] {
					taken[l] = true
					out[l]++
				}
			}
		}
	}
	return out
}
