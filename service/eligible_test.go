package service_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

func TestNodeFit(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
		}
	}
	label := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: value} }
	}
	taint := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
	}
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	const excluded = "node n has the label node.kubernetes.io/exclude-from-external-load-balancers"
	const cutOff = "node n has the condition NetworkUnavailable"
	for _, c := range []struct {
		name    string
		changes []func(*corev1.Node)
		rules   service.Fitness
		want    service.Eligibility
	}{
		{name: "plain"},
		{name: "excluded", changes: []func(*corev1.Node){label("")}, want: service.Eligibility{Reason: excluded}},
		{name: "excluded by the label with any value", changes: []func(*corev1.Node){label("false")}, want: service.Eligibility{Reason: excluded}},
		{name: "cut off", changes: []func(*corev1.Node){condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue)},
			want: service.Eligibility{Reason: cutOff, Failed: true}},
		{name: "not cut off", changes: []func(*corev1.Node){condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse)}},
		{name: "perhaps cut off", changes: []func(*corev1.Node){condition(corev1.NodeNetworkUnavailable, corev1.ConditionUnknown)}},
		// An unreachable kubelet says nothing about the pods, and kube-proxy continues.
		{name: "not ready", changes: []func(*corev1.Node){condition(corev1.NodeReady, corev1.ConditionUnknown)}},
		{name: "cordoned", changes: []func(*corev1.Node){cordon}},
		{name: "cordoned, which matters", changes: []func(*corev1.Node){cordon}, rules: service.Fitness{ExcludeCordoned: true}, want: service.Eligibility{Reason: "node n is cordoned"}},
		{name: "excluded, which does not matter", changes: []func(*corev1.Node){label("")}, rules: service.Fitness{IgnoreExcludeLabel: true}},
		{name: "tainted", changes: []func(*corev1.Node){taint}, rules: service.Fitness{ExcludeTaints: []string{"gpu"}}},
		{name: "tainted, which matters", changes: []func(*corev1.Node){taint}, rules: service.Fitness{ExcludeTaints: []string{"gpu", "broken"}},
			want: service.Eligibility{Reason: "node n has the taint broken"}},
		{name: "excluded and cut off", changes: []func(*corev1.Node){label(""), condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue)},
			want: service.Eligibility{Reason: cutOff, Failed: true}},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		for _, change := range c.changes {
			change(n)
		}
		if got := c.rules.Fit(n); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestEndpointsOf(t *testing.T) {
	yes, no, here, there, nowhere := new(bool), new(bool), "n1", "n2", ""
	*yes = true
	endpoint := func(node *string, ready, serving, terminating *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{
			NodeName: node, Conditions: discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating},
		}
	}
	ipv4 := service.Endpoints{Family: pool.IPv4}
	on := func(nodes ...string) service.Endpoints { return service.Endpoints{Family: pool.IPv4, Ready: nodes} }
	ending := service.Endpoints{Family: pool.IPv4, Terminating: []string{"n1"}}
	for _, c := range []struct {
		name      string
		endpoints []discoveryv1.Endpoint
		want      service.Endpoints
	}{
		{"none", nil, ipv4},
		{"ready", []discoveryv1.Endpoint{endpoint(&here, yes, yes, no)}, on("n1")},
		{"unknown, which means ready", []discoveryv1.Endpoint{endpoint(&here, nil, nil, nil)}, on("n1")},
		{"not ready", []discoveryv1.Endpoint{endpoint(&here, no, no, no)}, ipv4},
		{"not ready, and serving is not known", []discoveryv1.Endpoint{endpoint(&here, no, nil, nil)}, ipv4},
		{"serving while it is not ready, and not terminating", []discoveryv1.Endpoint{endpoint(&here, no, yes, no)}, ipv4},
		{"terminating, and serving", []discoveryv1.Endpoint{endpoint(&here, no, yes, yes)}, ending},
		{"terminating, and serving is not known", []discoveryv1.Endpoint{endpoint(&here, no, nil, yes)}, ending},
		{"terminating, and no longer serving", []discoveryv1.Endpoint{endpoint(&here, no, no, yes)}, ipv4},
		{"ready by publishNotReadyAddresses", []discoveryv1.Endpoint{endpoint(&here, yes, no, yes)}, on("n1")},
		{"on no node", []discoveryv1.Endpoint{endpoint(nil, nil, nil, nil), endpoint(&nowhere, nil, nil, nil)}, on("")},
		{"on some nodes, twice", []discoveryv1.Endpoint{
			endpoint(&there, nil, nil, nil), endpoint(&here, nil, nil, nil), endpoint(&there, nil, nil, nil)}, on("n1", "n2")},
	} {
		got, ok := service.EndpointsOf(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: c.endpoints})
		if !ok || !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got, ok := service.EndpointsOf(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6}); !ok || got.Family != pool.IPv6 {
		t.Errorf("a slice of IPv6 addresses: %v, %v", got, ok)
	}
	if _, ok := service.EndpointsOf(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeFQDN}); ok {
		t.Error("a slice of host names counts")
	}
}

func TestBacked(t *testing.T) {
	here := service.Endpoints{Family: pool.IPv4, Ready: []string{"n1"}}
	there := service.Endpoints{Family: pool.IPv4, Ready: []string{"n2"}}
	endingHere := service.Endpoints{Family: pool.IPv4, Terminating: []string{"n1"}}
	endingThere := service.Endpoints{Family: pool.IPv4, Terminating: []string{"n2"}}
	down := service.Endpoints{Family: pool.IPv4}
	other := service.Endpoints{Family: pool.IPv6, Ready: []string{"n1"}}
	var (
		cluster   = service.None
		somewhere = service.Any
		local     = service.OnNode
		notHere   = service.Eligibility{Reason: "no ready IPv4 endpoint on this node", Failed: true}
		nowhere   = service.Eligibility{Reason: "no ready IPv4 endpoint on any node", Failed: true}
		leaves    = service.Eligibility{Reason: "the last IPv4 endpoint on this node is terminating"}
	)
	for _, c := range []struct {
		rule      service.Rule
		endpoints []service.Endpoints
		want      service.Eligibility
	}{
		{cluster, nil, service.Eligibility{}},
		{somewhere, nil, nowhere},
		{somewhere, []service.Endpoints{down, other}, nowhere},
		{somewhere, []service.Endpoints{down, there}, service.Eligibility{}},
		{local, nil, notHere},
		{local, []service.Endpoints{there, other}, notHere},
		{local, []service.Endpoints{there, down, here}, service.Eligibility{}},
		{service.Rule(""), nil, service.Eligibility{}},
		{somewhere, []service.Endpoints{endingThere}, service.Eligibility{}},
		{local, []service.Endpoints{endingHere, here}, service.Eligibility{}},
		{local, []service.Endpoints{endingHere, there}, leaves},
		{local, []service.Endpoints{endingHere, endingThere, down, other}, service.Eligibility{}},
		{local, []service.Endpoints{endingThere}, notHere},
	} {
		if got := c.rule.Backed("n1", pool.IPv4, slices.Values(c.endpoints)); got != c.want {
			t.Errorf("%+v with %+v: got %+v, want %+v", c.rule, c.endpoints, got, c.want)
		}
	}
}

func TestEligibility(t *testing.T) {
	first, second := service.Planned("first %d", 1), service.Failed("second")
	for _, c := range []struct{ got, want service.Eligibility }{
		{service.Eligibility{}.And(service.Eligibility{}), service.Eligibility{}},
		{service.Eligibility{}.And(second), second},
		{first.And(service.Eligibility{}), first},
		{first.And(second), service.Eligibility{Reason: "first 1", Failed: true}},
		{second.And(first), second},
	} {
		if c.got != c.want {
			t.Errorf("got %+v, want %+v", c.got, c.want)
		}
	}
	if first.OK() || !(service.Eligibility{}).OK() {
		t.Error("OK does not follow from the absence of a reason")
	}
}

func TestSelectors(t *testing.T) {
	zone := func(zone string) v1alpha1.LabelSelector {
		return v1alpha1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	}
	exists := v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{{Key: "rack", Operator: metav1.LabelSelectorOpExists}}}
	for _, c := range []struct {
		selectors []v1alpha1.LabelSelector
		labels    map[string]string
		want      bool
	}{
		{nil, nil, true},
		{nil, map[string]string{"zone": "a"}, true},
		{[]v1alpha1.LabelSelector{{}}, nil, true},
		{[]v1alpha1.LabelSelector{zone("a")}, nil, false},
		{[]v1alpha1.LabelSelector{zone("a")}, map[string]string{"zone": "b"}, false},
		{[]v1alpha1.LabelSelector{zone("a"), zone("b")}, map[string]string{"zone": "b"}, true},
		{[]v1alpha1.LabelSelector{zone("a"), exists}, map[string]string{"rack": ""}, true},
	} {
		s := must.Get[service.Selectors](t)(service.SelectorsOf(c.selectors))
		if got := s.Match(c.labels); got != c.want {
			t.Errorf("%s", cmp.Diff(c.want, got))
		}
	}
	if _, err := service.SelectorsOf([]v1alpha1.LabelSelector{zone("not a value!")}); err == nil {
		t.Error("an invalid label value is accepted")
	}
}

func TestOlder(t *testing.T) {
	node := func(name string, seconds int64) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(seconds, 0)}}
	}
	nodes := []*corev1.Node{node("b", 1), node("c", 1), node("a", 3)}
	for _, n := range [][]*corev1.Node{{nodes[2], nodes[0], nodes[1]}, {nodes[1], nodes[0], nodes[2]}} {
		if slices.SortFunc(n, service.Older); !slices.Equal(n, nodes) {
			t.Errorf("%s is the oldest", n[0].Name)
		}
	}
}
