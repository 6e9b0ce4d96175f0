package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/wait"
)

const poolsAt = "/apis/herald.dev/v1alpha1/addresspools"

func poolOf(name, addresses string) *v1alpha1.AddressPool {
	return &v1alpha1.AddressPool{
		TypeMeta:   metav1.TypeMeta{Kind: "AddressPool", APIVersion: "herald.dev/v1alpha1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"},
		Spec:       v1alpha1.AddressPoolSpec{Addresses: []v1alpha1.AddressRange{v1alpha1.AddressRange(addresses)}},
	}
}

// ear records the calls of handlers of pools.
type ear struct {
	mu    sync.Mutex
	heard []string
}

func (e *ear) handlers() Handlers[*v1alpha1.AddressPool] {
	add := func(event string) func(*v1alpha1.AddressPool) {
		return func(p *v1alpha1.AddressPool) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.heard = append(e.heard, fmt.Sprint(event, " ", p.Name, " ", p.Spec.Addresses))
		}
	}
	return Handlers[*v1alpha1.AddressPool]{Set: add("set"), Delete: add("delete")}
}

func (e *ear) has() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// TestDeltas cuts watches of a server without history: handlers receive only the
// changes.
func TestDeltas(t *testing.T) {
	s, c := newStub(t, "36")
	s.put(poolsAt, poolOf("a", "10.0.0.0/24"))
	s.put(poolsAt, poolOf("b", "10.1.0.0/24"))
	s.put(poolsAt, poolOf("c", "10.2.0.0/24"))
	var l journal
	i := c.Informers(l.log())
	var e ear
	i.Pools.Handle(e.handlers())
	wait.Go(t, i.Run)
	<-i.Synced()
	want := []string{"set a [10.0.0.0/24]", "set b [10.1.0.0/24]", "set c [10.2.0.0/24]"}
	if diff := cmp.Diff(want, e.has()); diff != "" {
		t.Fatalf("at first (-want +got):\n%s", diff)
	}

	s.set(func() { s.refuse[poolsAt] = http.StatusInternalServerError })
	s.cut()
	wait.Until(t, "the trouble is logged", func() bool { return len(l.has()) > 0 })
	s.remove(poolsAt, "b")
	s.put(poolsAt, poolOf("c", "10.3.0.0/24"))
	annotated := poolOf("a", "10.0.0.0/24")
	annotated.Annotations = map[string]string{"example.com/of": "no interest"}
	s.put(poolsAt, annotated)
	if _, ok := i.Pools.Get("b"); !ok {
		t.Error("an object is forgotten while the server is away")
	}
	s.set(func() { delete(s.refuse, poolsAt) })
	want = append(want, "delete b [10.1.0.0/24]", "set c [10.3.0.0/24]")
	wait.Until(t, "the handlers receive the changes", func() bool { return len(e.has()) >= len(want) })

	s.put(poolsAt, poolOf("d", "10.4.0.0/24"))
	want = append(want, "set d [10.4.0.0/24]")
	wait.Until(t, "the handlers receive the next change", func() bool { return len(e.has()) >= len(want) })
	if diff := cmp.Diff(want, e.has()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a, _ := i.Pools.Get("a")
	if a.ResourceVersion != annotated.ResourceVersion || len(a.Annotations) > 0 {
		t.Errorf("a is version %s with %v, want version %s", a.ResourceVersion, a.Annotations, annotated.ResourceVersion)
	}
	for _, list := range s.asked {
		if list == poolsAt+` from version "0"` {
			t.Error("a list of any age was requested")
		}
	}
}

// TestTroubleIsLoggedOnce uses a server that is too old, then one without the CRDs.
func TestTroubleIsLoggedOnce(t *testing.T) {
	s, c := newStub(t, "30+")
	s.refuse[poolsAt] = http.StatusNotFound
	var l journal
	i := c.Informers(l.log())
	i.Pools.Handle((&ear{}).handlers())
	wait.Go(t, i.Run)
	wait.Until(t, "the version is logged", func() bool { return len(l.has()) >= 1 })
	again := func() {
		n := s.vain() + 2
		wait.Until(t, "the request is retried", func() bool { return s.vain() >= n })
	}
	again()
	s.set(func() { s.version = "31+" })
	wait.Until(t, "the missing CRDs are logged", func() bool { return len(l.has()) >= 3 })
	again()
	s.set(func() { delete(s.refuse, poolsAt) })
	<-i.Synced()
	want := []string{
		"version: the server is Kubernetes 1.30: Service VIPs need 1.31 or later",
		"version",
		"addresspools: the server does not know addresspools: apply Herald's CRDs",
		"addresspools",
	}
	wait.Until(t, "the end of the trouble is logged", func() bool { return len(l.has()) >= len(want) })
	if diff := cmp.Diff(want, l.has()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestVersion(t *testing.T) {
	for answer, want := range map[string]string{
		`{"major": "1", "minor": "31"}`:  "",
		`{"major": "1", "minor": "36+"}`: "",
		`{"major": "2", "minor": "0"}`:   "",
		`{"major": "1", "minor": "9"}`:   "the server is Kubernetes 1.9: Service VIPs need 1.31 or later",
		`{"major": "one"}`:               `the server's version is "one": want a number`,
		`{"major": "1", "minor": "x"}`:   `the server's version is 1 and "x": want a number`,
		`no JSON`:                        "the server's version: invalid character 'o' in literal null (expecting 'u')",
	} {
		got := ""
		if err := checkVersion([]byte(answer)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}

// TestWatchSecret creates, changes and deletes a Secret.
func TestWatchSecret(t *testing.T) {
	const at = "/api/v1/namespaces/herald-system/secrets"
	s, c := newStub(t, "36")
	secret := func(password string) *corev1.Secret {
		return &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "herald-system", Name: "bgp"}, Data: map[string][]byte{"password": []byte(password)},
		}
	}
	heard := make(chan string)
	var l journal
	wait.Go(t, func(ctx context.Context) {
		c.WatchSecret(ctx, l.log(), "herald-system", "bgp", func(s *corev1.Secret) {
			if s == nil {
				heard <- "none"
				return
			}
			heard <- string(s.Data["password"])
		})
	})
	want := func(password string) {
		t.Helper()
		if got := <-heard; got != password {
			t.Fatalf("received %q, want %q", got, password)
		}
	}
	want("none")
	s.put(at, secret("one"))
	want("one")
	s.put(at, secret("two"))
	want("two")
	s.remove(at, "bgp")
	want("none")
}

func TestTrim(t *testing.T) {
	yes, node := true, "n1"
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1", Labels: map[string]string{"l": "m"},
		Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "herald.dev/pool": "p"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}, Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{{Name: "default.web"}},
	}
	kept := metav1.ObjectMeta{
		Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1", Labels: map[string]string{"l": "m"},
		Annotations: map[string]string{"herald.dev/pool": "p"},
	}
	owned := kept // owners identify the origin of derived objects
	owned.OwnerReferences = meta.OwnerReferences
	bare := kept
	bare.Labels, bare.Annotations = nil, nil
	sliced := kept
	sliced.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	served := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1"}

	service := &corev1.Service{ObjectMeta: meta, Spec: served}
	other := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1"}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web", "l": "m"}
	n := &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.9.0.0/24"}, Status: corev1.NodeStatus{
		Images: []corev1.ContainerImage{{}}, Addresses: []corev1.NodeAddress{{Address: "10.0.1.1"}},
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRoute"},
		},
	}}
	space := &corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	for range 2 { // an object may be trimmed twice
		trimService(service)
		trimService(other)
		trimSlice(slice)
		trimNode(n)
		trimNamespace(space)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"Service", service, &corev1.Service{ObjectMeta: owned, Spec: served}},
		{"Service of another type", other, &corev1.Service{ObjectMeta: bare, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}},
		{"EndpointSlice", slice, &discoveryv1.EndpointSlice{ObjectMeta: sliced, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}}}},
		{"Node", n, &corev1.Node{ObjectMeta: kept, Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Address: "10.0.1.1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}},
		}}},
		{"Namespace", space, &corev1.Namespace{ObjectMeta: kept}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
