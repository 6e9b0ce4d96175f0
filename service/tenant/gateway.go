package tenant

import (
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

// ServesGateway reports whether a Gateway is of the class.
func ServesGateway(g *unstructured.Unstructured) bool {
	return g.GetDeletionTimestamp() == nil && text(object(g.Object["spec"])["gatewayClassName"]) == RouteClass
}

// Parents are those of a route, which is not served if there are none.
func (g Gateways) Parents(route *unstructured.Unstructured) (out []Parent) {
	if route.GetDeletionTimestamp() != nil {
		return nil
	}
	spec := object(route.Object["spec"])
	for _, ref := range objects(spec["parentRefs"]) {
		namespace := text(ref["namespace"])
		if namespace == "" {
			namespace = route.GetNamespace()
		}
		p := Parent{Ref: ref, Gateway: namespace + "/" + text(ref["name"])}
		gateway, ok := g.Get(p.Gateway)
		if kind := text(ref["kind"]); !ok || !ServesGateway(gateway) || kind != "" && kind != KindGateway {
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

// teller sets conditions of an object of a generation.
type teller struct {
	generation int64
	now        time.Time
}

func (t teller) set(conditions *[]metav1.Condition, kind string, holds bool, reason, message string) {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	t.pass(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

// pass sets one that somebody else has found.
func (t teller) pass(conditions *[]metav1.Condition, c metav1.Condition) {
	c.ObservedGeneration, c.LastTransitionTime = t.generation, metav1.NewTime(t.now.Truncate(time.Second))
	meta.SetStatusCondition(conditions, c)
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
	t := teller{o.GetGeneration(), now}
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
		t.tellParent(&is.Conditions, p, refused, lb, silent)
		out = append(out, is)
	}
	return map[string]any{"parents": out}
}

func (t teller) tellParent(conditions *[]metav1.Condition, p Parent, refused error, lb *v1alpha1.HTTPLoadBalancer, silent string) {
	ready := served(lb)
	if p.Reason != "" || refused != nil {
		accepted := &RouteRefusal{condAccepted, p.Reason, p.Message}
		if p.Reason == "" {
			why, ok := refused.(*RouteRefusal)
			if !ok {
				why = &RouteRefusal{condAccepted, ReasonRefused, refused.Error()}
			}
			accepted = why
		}
		for _, kind := range []string{condAccepted, condResolved} {
			if kind == accepted.Condition {
				t.set(conditions, kind, false, accepted.Reason, accepted.Message)
			} else {
				t.set(conditions, kind, true, kind, "")
			}
		}
		t.set(conditions, ConditionServed, false, accepted.Reason, accepted.Message)
		return
	}
	switch {
	case silent != "":
		t.pass(conditions, metav1.Condition{Type: ConditionServed, Status: metav1.ConditionUnknown, Reason: ReasonSilent, Message: silent})
	case ready == nil:
		return
	default:
		own := *ready
		own.Type = ConditionServed
		t.pass(conditions, own)
	}
	if ready != nil && ready.Status == metav1.ConditionFalse && len(lb.Status.Route) == 0 {
		t.set(conditions, condAccepted, false, ready.Reason, ready.Message)
	}
	if lb != nil && lb.Status.ObservedGeneration == lb.Generation {
		for _, c := range lb.Status.Route {
			t.pass(conditions, c)
		}
		*conditions = slices.DeleteFunc(*conditions, func(c metav1.Condition) bool { // what the gateway says no more
			return c.Type != ConditionServed && c.Type != condAccepted && meta.FindStatusCondition(lb.Status.Route, c.Type) == nil
		})
	}
}

// AnswerToGateway is the status to write of a Gateway of the class: attached are how many routes each of its listeners has, by their names.
func AnswerToGateway(g *unstructured.Unstructured, attached map[string]int, lb *v1alpha1.HTTPLoadBalancer, silent string, now time.Time) map[string]any {
	t := teller{g.GetGeneration(), now}
	is := object(g.Object["status"])
	ready := served(lb)
	programmed := ready != nil && ready.Status == metav1.ConditionTrue
	reason, message := "Pending", "the load-balancing cluster has not answered yet"
	switch {
	case programmed:
		reason, message = condProgrammed, "the load-balancing cluster serves it"
	case ready != nil && ready.Status == metav1.ConditionFalse:
		reason, message = "Invalid", ready.Message
	case silent != "":
		message = silent
	}
	conditions := convert[[]metav1.Condition](is["conditions"])
	t.set(&conditions, condAccepted, true, condAccepted, "the agent has told the load-balancing cluster")
	t.set(&conditions, condProgrammed, programmed, reason, message)
	before, listeners := convert[[]listenerStatus](is["listeners"]), []listenerStatus{}
	for _, l := range objects(object(g.Object["spec"])["listeners"]) {
		s := listenerStatus{Name: text(l["name"]), SupportedKinds: []map[string]any{}, AttachedRoutes: attached[text(l["name"])]}
		if i := slices.IndexFunc(before, func(b listenerStatus) bool { return b.Name == s.Name }); i >= 0 {
			s.Conditions = before[i].Conditions
		}
		kinds, known := allowedKinds(l)
		for _, kind := range kinds {
			s.SupportedKinds = append(s.SupportedKinds, map[string]any{"group": GatewayKind("").Group, "kind": kind})
		}
		if kindsOf(l) == nil {
			t.set(&s.Conditions, condAccepted, false, "UnsupportedProtocol", "want HTTP, HTTPS or TLS")
		} else {
			t.set(&s.Conditions, condAccepted, true, condAccepted, "")
		}
		if known {
			t.set(&s.Conditions, condResolved, true, condResolved, "")
		} else {
			t.set(&s.Conditions, condResolved, false, "InvalidRouteKinds", "it allows kinds of routes that its protocol does not have")
		}
		t.set(&s.Conditions, condProgrammed, programmed && known && kindsOf(l) != nil, reason, message)
		listeners = append(listeners, s)
	}
	status := map[string]any{"conditions": conditions, "listeners": listeners, "addresses": is["addresses"]}
	if lb != nil && len(lb.Status.Hostnames) > 0 {
		status["addresses"] = []map[string]any{{"type": "Hostname", "value": lb.Status.Hostnames[0]}}
	}
	return status
}

// AnswerToClass is the status of a GatewayClass of this controller.
func AnswerToClass(c *unstructured.Unstructured, now time.Time) map[string]any {
	conditions := convert[[]metav1.Condition](object(c.Object["status"])["conditions"])
	teller{c.GetGeneration(), now}.set(&conditions, condAccepted, true, condAccepted, "the agent tells the load-balancing cluster of its Gateways")
	return map[string]any{"conditions": conditions}
}

// OursClass reports whether a GatewayClass is of this controller.
func OursClass(c *unstructured.Unstructured) bool {
	return text(object(c.Object["spec"])["controllerName"]) == Controller
}

// AnswerToIngress is the status to write of an Ingress, whose own name is an alias of what serves it. It keeps what others have written.
func AnswerToIngress(o *unstructured.Unstructured, lb *v1alpha1.HTTPLoadBalancer) map[string]any {
	is := object(object(o.Object["status"])["loadBalancer"])
	switch names := ingressNames(lb); {
	case ServesIngress(o) && len(names) > 0:
		is = map[string]any{"ingress": names}
	case !ServesIngress(o) && len(names) > 0 && equality.Semantic.DeepEqual(is["ingress"], names):
		is = nil
	}
	return map[string]any{"loadBalancer": is}
}

func ingressNames(lb *v1alpha1.HTTPLoadBalancer) []any {
	if lb == nil || len(lb.Status.Hostnames) == 0 {
		return nil
	}
	return []any{map[string]any{"hostname": lb.Status.Hostnames[0]}}
}

// IngressTrouble is why an Ingress is not served, as a reason and a sentence; empty if it is, or nobody knows yet.
func IngressTrouble(refused error, lb *v1alpha1.HTTPLoadBalancer, silent string) (reason, message string) {
	ready := served(lb)
	switch {
	case refused != nil:
		return ReasonRefused, refused.Error()
	case silent != "":
		return ReasonSilent, silent
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return ready.Reason, ready.Message
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
