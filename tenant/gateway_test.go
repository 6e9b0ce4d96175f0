package tenant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/herald-vip/herald/api/v1alpha1"
)

const frontGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: default, name: front, generation: 2}
spec:
	gatewayClassName: herald
	listeners:
	- {name: any, port: 80, protocol: HTTP}
	- {name: shop, port: 80, protocol: HTTP, hostname: "*.shop.example.com", allowedRoutes: {namespaces: {from: All}}}
	- {name: own, port: 443, protocol: HTTPS, hostname: own.example.com, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {web: "yes"}}}}}
	- {name: grpc, port: 80, protocol: HTTP, hostname: grpc.example.com, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}
	- {name: none, port: 53, protocol: UDP}
`

func gatewaysOf(all ...*unstructured.Unstructured) Gateways {
	return Gateways{
		Get: func(key string) (*unstructured.Unstructured, bool) {
			i := slices.IndexFunc(all, func(g *unstructured.Unstructured) bool { return g.GetNamespace()+"/"+g.GetName() == key })
			if i < 0 {
				return nil, false
			}
			return all[i], true
		},
		LabelsOf: func(namespace string) map[string]string {
			if namespace == "labelled" {
				return map[string]string{"web": "yes"}
			}
			return nil
		},
	}
}

// routeOf returns a route with one parent and hostnames.
func routeOf(t *testing.T, kind, namespace, parent, hostnames string) *unstructured.Unstructured {
	return tree(t, fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {namespace: %s, name: web, generation: 3}
spec: {parentRefs: [{%s}], hostnames: [%s], rules: [{backendRefs: [{name: web, port: 80}]}]}
`, kind, namespace, parent, hostnames))
}

func TestParents(t *testing.T) {
	other := tree(t, strings.Replace(frontGateway, "gatewayClassName: herald", "gatewayClassName: cloud", 1))
	other.SetName("other")
	gateways := gatewaysOf(tree(t, frontGateway), other)
	for _, tt := range []struct{ kind, namespace, parent, hostnames, want string }{
		{"HTTPRoute", "default", "name: front", "", "[any shop] at [*.shop.example.com], by name"},
		{"HTTPRoute", "default", "name: front, sectionName: any", "a.example.com, b.example.com", "[any] at [a.example.com b.example.com]"},
		{"HTTPRoute", "default", "name: front, sectionName: shop", "a.shop.example.com, b.example.com", "[shop] at [a.shop.example.com]"},
		{"HTTPRoute", "default", "name: front, sectionName: shop", "shop.example.com", "NoMatchingListenerHostname"},
		{"HTTPRoute", "default", `name: front, sectionName: shop`, `"*.example.com"`, "[shop] at [*.shop.example.com]"},
		{"HTTPRoute", "default", "name: front, port: 8080", "", "NoMatchingParent"},
		{"HTTPRoute", "default", "name: front, sectionName: none", "", "NotAllowedByListeners"},
		{"HTTPRoute", "default", "name: front, sectionName: grpc", "", "NotAllowedByListeners"},
		{"GRPCRoute", "default", "name: front, sectionName: grpc", "", "[grpc] at [grpc.example.com]"},
		{"TLSRoute", "default", "name: front", "", "NotAllowedByListeners"},
		{"HTTPRoute", "far", "name: front", "", ""}, // in its own namespace
		{"HTTPRoute", "far", "namespace: default, name: front, sectionName: any", "", "NotAllowedByListeners"},
		{"HTTPRoute", "far", "namespace: default, name: front", "", "[shop] at [*.shop.example.com]"},
		{"HTTPRoute", "far", "namespace: default, name: front, port: 443", "", "NotAllowedByListeners"},
		{"HTTPRoute", "labelled", "namespace: default, name: front, port: 443", "", "[own] at [own.example.com]"},
		{"HTTPRoute", "default", "name: other", "", ""},
		{"HTTPRoute", "default", "name: front, kind: Service", "", ""},
	} {
		got := ""
		for _, p := range gateways.Parents(routeOf(t, tt.kind, tt.namespace, tt.parent, tt.hostnames)) {
			if got = p.Reason; got == "" {
				got = fmt.Sprintf("%v at %v", p.Listeners, p.Hostnames)
			}
			if p.ByName {
				got += ", by name"
			}
		}
		if got != tt.want {
			t.Errorf("%s in %s of {%s} with [%s]: %q, want %q", tt.kind, tt.namespace, tt.parent, tt.hostnames, got, tt.want)
		}
	}
}

// briefs returns short forms of conditions, by type.
func briefs(t *testing.T, v any) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, c := range convert[[]metav1.Condition](v) {
		out[c.Type] = strings.TrimSpace(brief(c))
		if c.ObservedGeneration == 0 || c.LastTransitionTime.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	return out
}

// answered returns an HTTPLoadBalancer with a status.
func answered(status metav1.ConditionStatus, reason, message string, route ...metav1.Condition) *v1alpha1.HTTPLoadBalancer {
	lb := &v1alpha1.HTTPLoadBalancer{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	lb.Status = v1alpha1.HTTPLoadBalancerStatus{
		ObservedGeneration: 1, Hostnames: []string{"front.acme.lb.example.net"},
		Conditions: append(route, metav1.Condition{Type: ConditionReady, Status: status, Reason: reason, Message: message}),
	}
	return lb
}

func TestAnswerToRoute(t *testing.T) {
	const foreign = "the backend web is in another namespace: only Services in the namespace of the route are served"
	gateways := gatewaysOf(tree(t, frontGateway))
	accepted := metav1.Condition{Type: condAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "by it"}
	older := answered(metav1.ConditionTrue, ReasonServed, "it is served", accepted)
	older.Generation = 2
	for name, tt := range map[string]struct {
		parent  string
		refused error
		lb      *v1alpha1.HTTPLoadBalancer
		timeout string
		want    map[string]string
	}{
		"not asked yet": {parent: "name: front", want: map[string]string{}},
		"not answered":  {parent: "name: front", lb: older, want: map[string]string{}},
		"served": {parent: "name: front", lb: answered(metav1.ConditionTrue, ReasonServed, "it is served", accepted),
			want: map[string]string{condAccepted: "True Accepted by it", ConditionServed: "True Served it is served"}},
		"refused there": {parent: "name: front", lb: answered(metav1.ConditionFalse, "Refused", "no such name"),
			want: map[string]string{condAccepted: "False Refused no such name", condResolved: "True ResolvedRefs", ConditionServed: "False Refused no such name"}},
		"no pods": {parent: "name: front", lb: answered(metav1.ConditionFalse, ReasonNoNodes, "no pods", accepted),
			want: map[string]string{condAccepted: "True Accepted by it", ConditionServed: "False NoNodes no pods"}},
		"refused here": {parent: "name: front", refused: refuse(reasonKind, "a Secret"),
			want: map[string]string{condAccepted: "True Accepted", condResolved: "False InvalidKind a Secret", ConditionServed: "False InvalidKind a Secret"}},
		"a backend refused": {parent: "name: front", lb: answered(metav1.ConditionFalse, ReasonNoNodes, "a backend is refused", accepted, condition(condResolved, false, "BackendNotFound", "")),
			want: map[string]string{condAccepted: "True Accepted by it", condResolved: "False RefNotPermitted " + foreign, ConditionServed: "False RefNotPermitted " + foreign}},
		"a backend refused, and its hostname": {parent: "name: front", lb: answered(metav1.ConditionFalse, "Refused", "no such name"),
			want: map[string]string{condAccepted: "False Refused no such name", condResolved: "False RefNotPermitted " + foreign, ConditionServed: "False Refused no such name"}},
		"refused by the server": {parent: "name: front", refused: errors.New("no quota"),
			want: map[string]string{condAccepted: "False Refused no quota", condResolved: "True ResolvedRefs", ConditionServed: "False Refused no quota"}},
		"not attached": {parent: "name: front, port: 81", want: map[string]string{
			condAccepted: "False NoMatchingParent the Gateway has no such listener", condResolved: "True ResolvedRefs",
			ConditionServed: "False NoMatchingParent the Gateway has no such listener"}},
		"no answer": {parent: "name: front", timeout: "silence", lb: older, want: map[string]string{ConditionServed: "Unknown Silent silence"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := routeOf(t, "HTTPRoute", "default", tt.parent, "")
			if strings.HasPrefix(name, "a backend refused") {
				o.Object["spec"].(map[string]any)["rules"] = []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "namespace": "other", "port": int64(80)}}}}
			}
			theirs := map[string]any{"controllerName": "example.com/other", "parentRef": map[string]any{"name": "other"}}
			o.Object["status"] = map[string]any{"parents": []any{theirs}}
			status := AnswerToRoute(o, gateways.Parents(o), tt.refused, tt.lb, tt.timeout, now)
			parents := objects(convert[map[string]any](status)["parents"])
			if len(parents) != 2 || parents[0]["controllerName"] != "example.com/other" {
				t.Fatalf("%v", parents)
			}
			if diff := cmp.Diff(tt.want, briefs(t, parents[1]["conditions"])); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if SameStatus(o, status) {
				t.Error("SameStatus reports no change")
			}
			o.Object["status"] = convert[map[string]any](status)
			if !SameStatus(o, AnswerToRoute(o, gateways.Parents(o), tt.refused, tt.lb, tt.timeout, now.Add(1e10))) {
				t.Error("the status is written again")
			}
			if left := convert[[]any](AnswerToRoute(o, nil, nil, nil, "", now)["parents"]); len(left) != 1 {
				t.Errorf("a route that is no longer served keeps %v", left)
			}
		})
	}
}

func TestAnswerToGateway(t *testing.T) {
	g := tree(t, frontGateway)
	gateways := gatewaysOf(g)
	route := routeOf(t, "HTTPRoute", "default", "name: front", "")
	attached := gateways.Attached("default/front", slices.Values([]*unstructured.Unstructured{route, route}))
	if diff := cmp.Diff(map[string]int{"any": 2, "shop": 2}, attached); diff != "" {
		t.Error(diff)
	}
	status := convert[map[string]any](AnswerToGateway(g, attached, nil, answered(metav1.ConditionTrue, ReasonServed, "it is served"), "", now))
	if got := fmt.Sprint(status["addresses"]); got != "[map[type:Hostname value:front.acme.lb.example.net]]" {
		t.Error(got)
	}
	if got := briefs(t, status["conditions"])[condProgrammed]; !strings.HasPrefix(got, "True Programmed") {
		t.Error(got)
	}
	for listeners, want := range map[string]string{
		"{name: a, port: 80, protocol: HTTP}":                                     "True Accepted",
		"{name: a, port: 80, protocol: HTTP}, {name: b, port: 53, protocol: UDP}": "True ListenersNotValid ",
		"{name: a, port: 53, protocol: UDP}":                                      "False ListenersNotValid ",
	} {
		some := tree(t, "apiVersion: v1\nkind: Gateway\nmetadata: {generation: 1}\nspec: {listeners: ["+listeners+"]}")
		if got := briefs(t, AnswerToGateway(some, nil, nil, nil, "", now)["conditions"])[condAccepted]; !strings.HasPrefix(got, want) {
			t.Errorf("with %s: %q, want %q", listeners, got, want)
		}
	}
	var got []string
	for _, l := range objects(status["listeners"]) {
		c := briefs(t, l["conditions"])
		got = append(got, fmt.Sprintf("%v %v %.5s %.5s %d", l["name"], l["attachedRoutes"], c[condAccepted], c[condProgrammed], len(l["supportedKinds"].([]any))))
	}
	if diff := cmp.Diff([]string{"any 2 True  True  2", "shop 2 True  True  2", "own 0 True  True  2", "grpc 0 True  True  1", "none 0 False False 0"}, got); diff != "" {
		t.Error(diff)
	}
	if got := briefs(t, AnswerToGateway(g, nil, errors.New("no quota"), nil, "", now)["conditions"])[condProgrammed]; got != "False Invalid no quota" {
		t.Error(got)
	}
	if got := briefs(t, AnswerToGateway(g, nil, nil, nil, "silence", now)["conditions"])[condProgrammed]; got != "False Pending silence" {
		t.Error(got)
	}
}

func TestAnswerToIngress(t *testing.T) {
	o := tree(t, plainIngress)
	if !SameStatus(o, AnswerToIngress(o, nil)) {
		t.Error("a status is written without an answer")
	}
	lb := answered(metav1.ConditionTrue, ReasonServed, "it is served")
	status := AnswerToIngress(o, lb)
	if got := fmt.Sprint(status); got != "map[loadBalancer:map[ingress:[map[hostname:front.acme.lb.example.net]]]]" {
		t.Error(got)
	}
	o.Object["status"] = convert[map[string]any](status)
	if !SameStatus(o, AnswerToIngress(o, lb)) || !SameStatus(o, AnswerToIngress(o, nil)) {
		t.Error("the status is written again")
	}
	o.Object["spec"].(map[string]any)["ingressClassName"] = "other"
	if SameStatus(o, AnswerToIngress(o, lb)) {
		t.Error("an Ingress that left the class keeps its name")
	}
	if _, message := IngressTrouble(nil, answered(metav1.ConditionFalse, "NoNodes", "no pods"), ""); message != "no pods" {
		t.Error(message)
	}
}
