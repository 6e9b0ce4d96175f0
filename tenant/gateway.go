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

// Parent is what a reference of a route to a Gateway of the class comes to.
type Parent struct {
	Ref       map[string]any
	Gateway   string   // its namespace and name, with a slash between
	Listeners []string // the names of those that take the route
	Hostnames []string // at which it is served
	ByName    bool     // at the name of the Gateway, too
	// Reason is why no listener takes it, empty if one does, and Message a sentence.
	Reason, Message string
}

// Gateways are those of the class in a tenant's cluster, by namespace and name with a slash between, and labelsOf are the labels of a namespace.
type Gateways struct {
	Get      func(key string) (*unstructured.Unstructured, bool)
	LabelsOf func(namespace string) map[string]string
}

// Parents are those of a route, which is not served if there are none.
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

// attach finds the listeners that take a route.
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

// kindsOf are the kinds of routes that a listener can have, by its protocol.
func kindsOf(listener map[string]any) []string {
	switch text(listener["protocol"]) {
	case "HTTP", "HTTPS":
		return []string{"HTTPRoute", "GRPCRoute"}
	case "TLS":
		return []string{"TLSRoute"}
	}
	return nil
}

// allowedKinds are those of them that it allows; it is not ok if it asks for others.
func allowedKinds(listener map[string]any) (kinds []string, ok bool) {
	can := kindsOf(listener)
	asked := objects(object(listener["allowedRoutes"])["kinds"])
	if len(asked) == 0 {
		return can, true
	}
	for _, k := range asked {
		if kind := text(k["kind"]); slices.Contains(can, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds, len(kinds) == len(asked)
}

// allows reports whether a listener takes routes of such a kind and namespace.
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

// intersection is the hostname that two have in common, of which one may be a wildcard, and the empty one is any. It is not ok if there is none.
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

// parentStatus is what a route is told of one of its parents, and listenerStatus what a Gateway is of one of its listeners.
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

// dated are conditions about an object of a generation, with the times of those before that said the same. What is not said any more goes.
func dated(before, now []metav1.Condition, generation int64, at time.Time) []metav1.Condition {
	for i := range now {
		now[i].ObservedGeneration, now[i].LastTransitionTime = generation, metav1.NewTime(at.Truncate(time.Second))
		if was := meta.FindStatusCondition(before, now[i].Type); was != nil && was.Status == now[i].Status {
			now[i].LastTransitionTime = was.LastTransitionTime
		}
	}
	return now
}

// condition is one that holds or does not.
func condition(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// served is the condition Ready of what was asked for as it is; nil if there is none yet.
func served(lb *v1alpha1.HTTPLoadBalancer) *metav1.Condition {
	if lb == nil || lb.Status.ObservedGeneration != lb.Generation {
		return nil
	}
	return meta.FindStatusCondition(lb.Status.Conditions, ConditionReady)
}

// AnswerToRoute is the status to write of a route of the Gateway API: refused says why it is not asked for, lb is what was asked for
// as it is, nil if nothing is, and silent says who has not been heard. What other controllers tell stays.
func AnswerToRoute(o *unstructured.Unstructured, parents []Parent, refused error, lb *v1alpha1.HTTPLoadBalancer, silent string, now time.Time) map[string]any {
	before, out := []parentStatus{}, []parentStatus{}
	for _, p := range convert[[]parentStatus](object(o.Object["status"])["parents"]) {
		if p.ControllerName == Controller {
			before = append(before, p)
		} else {
			out = append(out, p)
		}
	}
	for _, p := range parents {
		is := parentStatus{ParentRef: p.Ref, ControllerName: Controller}
		if i := slices.IndexFunc(before, func(b parentStatus) bool {
			return equality.Semantic.DeepEqual(b.ParentRef, convert[map[string]any](p.Ref))
		}); i >= 0 {
			is.Conditions = before[i].Conditions
		}
		is.Conditions = dated(is.Conditions, toldOf(is.Conditions, p, refused, refusedBackend(o), lb, silent), o.GetGeneration(), now)
		out = append(out, is)
	}
	return map[string]any{"parents": out}
}

// toldOf are the conditions of a route about one of its parents, which had others before: refused says why it is not served, without why one of its backends is not.
func toldOf(before []metav1.Condition, p Parent, refused, without error, lb *v1alpha1.HTTPLoadBalancer, silent string) []metav1.Condition {
	if p.Reason != "" {
		refused = refuse(pool.Reason(p.Reason), "%s", p.Message)
	}
	c := outcome(refused, silent, served(lb))
	if c == nil {
		return before
	}
	var theirs []metav1.Condition // the gateway's, but for those about an earlier generation
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
	default: // nobody says otherwise
		theirs = slices.DeleteFunc(slices.Clone(before), func(c metav1.Condition) bool { return c.Type == ConditionServed })
	}
	if r := outcome(without, "", nil); r != nil {
		theirs = append(slices.DeleteFunc(theirs, func(c metav1.Condition) bool { return c.Type == condResolved }), condition(condResolved, false, r.Reason, r.Message))
	}
	return append(theirs, *c)
}

// AnswerToGateway is the status to write of a Gateway of the class: attached are how many routes each of its listeners has, by their names, and the rest is as
// in [AnswerToRoute].
func AnswerToGateway(g *unstructured.Unstructured, attached map[string]int, refused error, lb *v1alpha1.HTTPLoadBalancer, silent string, now time.Time) map[string]any {
	is := object(g.Object["status"])
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
	case silent != "":
		message = silent
	}
	unsupported := 0
	before, listeners := convert[[]listenerStatus](is["listeners"]), []listenerStatus{}
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
			resolved = condition(condResolved, false, "InvalidRouteKinds", "it allows kinds of routes that its protocol does not have")
		}
		var was []metav1.Condition
		if i := slices.IndexFunc(before, func(b listenerStatus) bool { return b.Name == s.Name }); i >= 0 {
			was = before[i].Conditions
		}
		serves := condition(condProgrammed, programmed, reason, message)
		if !known || kindsOf(l) == nil {
			serves = condition(condProgrammed, false, "Invalid", "")
		}
		s.Conditions = dated(was, []metav1.Condition{accepted, resolved, serves}, g.GetGeneration(), now)
		listeners = append(listeners, s)
	}
	accepted, serves := condition(condAccepted, true, condAccepted, ""), condition(condProgrammed, programmed, reason, message)
	if unsupported > 0 {
		accepted = condition(condAccepted, unsupported < len(listeners), "ListenersNotValid", "a listener has a protocol that is not served")
	}
	if accepted.Status == metav1.ConditionFalse {
		serves = condition(condProgrammed, false, "Invalid", accepted.Message)
	}
	conditions := dated(convert[[]metav1.Condition](is["conditions"]), []metav1.Condition{accepted, serves}, g.GetGeneration(), now)
	status := map[string]any{"conditions": conditions, "listeners": listeners, "addresses": is["addresses"]}
	if lb != nil && len(lb.Status.Hostnames) > 0 {
		status["addresses"] = []map[string]any{{"type": "Hostname", "value": lb.Status.Hostnames[0]}}
	}
	return status
}

// AnswerToClass is the status of a GatewayClass of this controller.
func AnswerToClass(c *unstructured.Unstructured, now time.Time) map[string]any {
	before := convert[[]metav1.Condition](object(c.Object["status"])["conditions"])
	said := []metav1.Condition{condition(condAccepted, true, condAccepted, "the agent tells the load-balancing cluster of its Gateways")}
	return map[string]any{"conditions": dated(before, said, c.GetGeneration(), now)}
}

// AnswerToIngress is the status to write of an Ingress, whose own name is an alias of what serves it. It keeps what others have written.
func AnswerToIngress(o *unstructured.Unstructured, lb *v1alpha1.HTTPLoadBalancer) map[string]any {
	is := object(object(o.Object["status"])["loadBalancer"])
	if lb != nil && len(lb.Status.Hostnames) > 0 {
		names := []any{map[string]any{"hostname": lb.Status.Hostnames[0]}}
		switch {
		case Serves(o):
			is = map[string]any{"ingress": names}
		case equality.Semantic.DeepEqual(is["ingress"], names):
			is = nil
		}
	}
	return map[string]any{"loadBalancer": is}
}

// IngressTrouble is why an Ingress is not served, as a reason and a sentence; empty if it is, or nobody knows yet.
func IngressTrouble(refused error, lb *v1alpha1.HTTPLoadBalancer, silent string) (reason, message string) {
	if c := outcome(refused, silent, served(lb)); c != nil && (c.Status == metav1.ConditionFalse || silent != "") {
		return c.Reason, c.Message
	}
	return "", ""
}

// SameStatus reports whether an object has a status as is to be written.
func SameStatus(o *unstructured.Unstructured, status map[string]any) bool {
	return has(convert[any](o.Object["status"]), convert[any](status))
}

// Attached are how many of routes each listener of a Gateway takes.
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
