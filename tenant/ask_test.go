package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// web returns a Service of a tenant as its API server stores it, modified by change.
func web(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 1},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.7", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{name: value} }
}

func typed(kind corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = kind }
}

func TestModeOf(t *testing.T) {
	kubelb := annotated(AnnotationClass, ClassKubeLB)
	class := func(name string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.LoadBalancerClass = &name }
	}
	for name, tt := range map[string]struct {
		s         *corev1.Service
		byDefault bool
		want      Mode
	}{
		"without a class":       {web(), true, ByStatus},
		"not by default":        {web(), false, NotServed},
		"of the class":          {web(class(Class)), false, ByStatus},
		"of another class":      {web(class("example.com/cloud")), true, NotServed},
		"node ports, annotated": {web(typed(corev1.ServiceTypeNodePort), kubelb), true, ByNodePorts},
		"node ports":            {web(typed(corev1.ServiceTypeNodePort)), true, NotServed},
		"annotated otherwise":   {web(typed(corev1.ServiceTypeNodePort), annotated(AnnotationClass, "nginx")), true, NotServed},
		"its own balancer":      {web(class("example.com/cloud"), kubelb), false, ByEndpoints},
		"within the cluster":    {web(typed(corev1.ServiceTypeClusterIP), kubelb), true, NotServed},
		"about to be deleted":   {web(func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), true, NotServed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ModeOf(tt.s, service.Scope{Class: Class, Default: tt.byDefault}); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestAsk(t *testing.T) {
	endpoints := []service.Endpoints{
		{Family: pool.IPv4, Ready: []string{"", "n2", "n1"}}, {Family: pool.IPv6, Ready: []string{"n3"}}, {Family: pool.IPv4, Ready: []string{"n1"}},
	}
	plain := v1alpha1.TCPLoadBalancerSpec{
		Origin:     v1alpha1.ObjectReference{Namespace: "default", Name: "web"},
		Ports:      []v1alpha1.LoadBalancerPort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: 30080}},
		IPFamilies: []string{"IPv4"},
	}
	for name, tt := range map[string]struct {
		s      *corev1.Service
		mode   Mode
		change func(*v1alpha1.TCPLoadBalancerSpec)
		fails  string // a part of the expected error
	}{
		"plain": {s: web()},
		"all fields": {
			s: web(func(s *corev1.Service) {
				s.Annotations = map[string]string{service.AnnotationPool: "public", service.AnnotationShare: "dns", service.AnnotationAddresses: "10.1.0.5"}
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
				s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
			}),
			change: func(w *v1alpha1.TCPLoadBalancerSpec) {
				w.Pool, w.Share, w.Addresses, w.SourceRanges = "public", "dns", []string{"10.1.0.5"}, []string{"192.0.2.0/24"}
				w.SessionAffinity, w.IPFamilies, w.Partial = 10800, []string{"IPv4", "IPv6"}, true
			},
		},
		"written by an agent before": {s: web(annotated(service.AnnotationAssigned, "10.1.0.5"))},
		"local": {
			s:      web(func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }),
			change: func(w *v1alpha1.TCPLoadBalancerSpec) { w.Local, w.Nodes = true, []string{"n1", "n2"} },
		},
		"its own balancer": {
			s: web(func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}, {IP: "203.0.113.8"}}
			}),
			mode: ByEndpoints,
			change: func(w *v1alpha1.TCPLoadBalancerSpec) {
				w.Endpoints, w.Ports[0].TargetPort = []string{"203.0.113.8", "203.0.113.9"}, 80
			},
		},
		"its own balancer does not exist yet": {s: web(), mode: ByEndpoints, change: func(w *v1alpha1.TCPLoadBalancerSpec) { *w = v1alpha1.TCPLoadBalancerSpec{} }},
		"its own balancer has a name": {
			s: web(func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "a.example.com"}}
			}),
			mode: ByEndpoints, fails: "its own load balancer is the name a.example.com, not an address",
		},
		"no node port":       {s: web(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 }), fails: "port 80 has no node port"},
		"a mistyped address": {s: web(annotated(service.AnnotationAddresses, "10.1.0")), fails: `has "10.1.0": want an address`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Ask(tt.s, tt.mode, nil, slices.Values(endpoints))
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error %v, want %q", err, tt.fails)
				}
				return
			}
			want := plain.DeepCopy()
			if tt.change != nil {
				tt.change(want)
			}
			if len(want.Ports) == 0 {
				want = nil
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A backend of routes is requested by its own node ports or by the node ports of its copy.
func TestAskByRoute(t *testing.T) {
	within := func(change ...func(*corev1.Service)) *corev1.Service {
		s := web(typed(corev1.ServiceTypeClusterIP))
		s.Spec.Selector, s.Spec.Ports[0].NodePort = map[string]string{"app": "web"}, 0
		for _, c := range change {
			c(s)
		}
		return s
	}
	copied := CopyOf(within())
	copied.Spec.Ports[0].NodePort = 30081
	somewhere := []service.Endpoints{{Family: pool.IPv4, Ready: []string{"n2", "n1"}}}
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	own := func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080 }
	for name, tt := range map[string]struct {
		s, copied *corev1.Service
		endpoints []service.Endpoints
		want      string // the node port, whether it is local, and its nodes
	}{
		"by its copy":           {within(), copied, somewhere, "30081 false []"},
		"no copy yet":           {within(), nil, somewhere, ""},
		"no node port yet":      {within(), CopyOf(within()), somewhere, ""},
		"no pod":                {within(), copied, nil, "30081 true []"},
		"by its own node ports": {within(own), nil, somewhere, "30080 false []"},
		"local":                 {within(own, local), nil, somewhere, "30080 true [n1 n2]"},
		"headless":              {within(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), nil, somewhere, "it has no cluster IP or no selector, so the load-balancing cluster cannot reach it"},
		"a name":                {within(typed(corev1.ServiceTypeExternalName)), nil, somewhere, "it has no cluster IP or no selector, so the load-balancing cluster cannot reach it"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			spec, err := Ask(tt.s, ByRoute, tt.copied, slices.Values(tt.endpoints))
			switch {
			case err != nil:
				got = err.Error()
			case spec != nil && (!spec.Internal || spec.Ports[0].Port != 80):
				t.Errorf("%+v", spec)
			case spec != nil:
				got = fmt.Sprint(spec.Ports[0].TargetPort, spec.Local, spec.Nodes)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestCopyName(t *testing.T) {
	long := strings.Repeat("a", 63)
	if got := CopyName("web"); got != "herald-web" {
		t.Error(got)
	}
	if a, b := CopyName(long), CopyName(long[:62]+"b"); a == b || len(a) > 63 || len(validation.IsDNS1035Label(a)) > 0 {
		t.Errorf("%q and %q", a, b)
	}
}

func TestNodesOf(t *testing.T) {
	node := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z"}}}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "10.20.0.1"}, {Type: corev1.NodeInternalIP, Address: "10.20.0.2"},
			{Type: corev1.NodeInternalIP, Address: "fd00:20::1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(n)
		}
		return n
	}
	told := func(name string, ready bool) v1alpha1.TenantNode {
		return v1alpha1.TenantNode{Name: name, Addresses: []string{"10.20.0.1", "fd00:20::1"}, Zone: "z", Ready: ready}
	}
	got := NodesOf(slices.Values([]*corev1.Node{
		node("e", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
		node("d", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: toBeDeleted}} }),
		node("c", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }),
		node("b", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }),
		node("a", nil),
		node("none", func(n *corev1.Node) { n.Status.Addresses = nil }),
	}), corev1.NodeInternalIP)
	want := []v1alpha1.TenantNode{told("a", true), told("b", false), told("c", false), told("d", false), told("e", false)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
