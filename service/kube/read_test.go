package kube

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/wait"
)

// TestSnapshot: without a Lease's name, only reports and readiness of the nodes are read.
func TestSnapshot(t *testing.T) {
	const reports, nodes = "/apis/herald.dev/v1alpha1/nodestatuses", "/api/v1/nodes"
	s, c := newStub(t, "36")
	for _, name := range []string{"n1", "n4"} {
		s.put(reports, &v1alpha1.NodeStatus{TypeMeta: metav1.TypeMeta{Kind: "NodeStatus", APIVersion: "herald.dev/v1alpha1"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, ready := range map[string]corev1.ConditionStatus{"n1": corev1.ConditionTrue, "n2": corev1.ConditionFalse, "n3": corev1.ConditionUnknown} {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		s.put(nodes, n)
	}
	got := must.Get[*Snapshot](t)(c.Snapshot(t.Context(), "herald-system", ""))
	if diff := cmp.Diff(map[string]bool{"n1": true, "n2": false, "n3": false}, got.Ready); len(got.Nodes) != 2 || diff != "" {
		t.Errorf("%d report; ready (-want +got):\n%s", len(got.Nodes), diff)
	}
	slices.Sort(s.asked)
	if diff := cmp.Diff([]string{nodes + ` from version ""`, reports + ` from version ""`}, s.asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// TestConnectAsUser: like kubectl, it merges all files of KUBECONFIG, which may be missing, unless a file is named.
func TestConnectAsUser(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("{apiVersion: v1, kind: Config, "+text+"}"), 0o600))
		return path
	}
	context := write("a", "contexts: [{name: x, context: {cluster: there}}], current-context: x")
	servers := write("b", `clusters: [{name: there, cluster: {server: "https://10.0.0.1:6443"}}]`)
	other := write("c", `clusters: [{name: there, cluster: {server: "https://10.0.0.2:6443"}}], contexts: [{name: x, context: {cluster: there}}], current-context: x`)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none")+":"+context+":"+servers)
	for file, want := range map[string]string{"": "https://10.0.0.1:6443", other: "https://10.0.0.2:6443"} {
		if c, err := ConnectAsUser(file, "test"); err != nil || c.config.Host != want {
			t.Errorf("by file %q: %+v, %v; want %s", file, c, err, want)
		}
	}
	if _, err := ConnectAsUser(filepath.Join(dir, "none"), "test"); err == nil {
		t.Error("a missing file is not an error")
	}
}

// TestNodeStatuses: they are read once, from the server's cache, and errors are explained.
func TestNodeStatuses(t *testing.T) {
	const at = "/apis/herald.dev/v1alpha1/nodestatuses"
	s, c := newStub(t, "36")
	s.put(at, &v1alpha1.NodeStatus{
		TypeMeta:   metav1.TypeMeta{Kind: "NodeStatus", APIVersion: "herald.dev/v1alpha1"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.NodeState{Version: "v1"},
	})
	list, err := c.NodeStatuses(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "n1" || list[0].Status.Version != "v1" {
		t.Errorf("read %+v, %v", list, err)
	}
	if len(s.asked) != 1 || s.asked[0] != at+` from version "0"` {
		t.Errorf("asked for %q", s.asked)
	}
	for status, want := range map[int]string{
		http.StatusForbidden:    "give Herald's service account the rights of its manifests",
		http.StatusNotFound:     "the server does not know nodestatuses: apply Herald's CRDs",
		http.StatusUnauthorized: "the server rejects the credentials",
	} {
		s.set(func() { s.refuse[at] = status })
		if list, err := c.NodeStatuses(t.Context()); list != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("status %d: %v, %v, want %q", status, list, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.NodeStatuses(ended); err == nil {
		t.Error("a canceled request succeeded")
	}
}

// A missing kind or a missing right is not an error; a failing server is.
func TestTenants(t *testing.T) {
	const at = "/apis/herald.dev/v1alpha1/tenants"
	for _, test := range []struct {
		name   string
		status int // of the answer; 0 means the stub's objects
		want   int
		fails  bool
	}{
		{name: "two", want: 2},
		{name: "no such kind", status: http.StatusNotFound},
		{name: "no right", status: http.StatusForbidden},
		{name: "an unknown user", status: http.StatusUnauthorized, fails: true},
		{name: "a failing server", status: http.StatusInternalServerError, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, c := newStub(t, "36")
			for _, name := range []string{"acme", "beta"} {
				s.put(at, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			if test.status != 0 {
				s.set(func() { s.refuse[at] = test.status })
			}
			got, err := c.Tenants(t.Context())
			if len(got) != test.want || (err != nil) != test.fails {
				t.Errorf("%d Tenants and %v, want %d", len(got), err, test.want)
			}
		})
	}
}

// An optional kind has no objects if the server lacks it; objects of other kinds are found.
func TestOptionalKinds(t *testing.T) {
	s, c := newStub(t, "36")
	s.set(func() { s.refuse["/apis/gateway.networking.k8s.io/v1/httproutes"] = http.StatusNotFound })
	informers, all := c.unstructured([]schema.GroupVersionKind{
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, {Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	}, metav1.ListOptions{})
	listed := &unstructured.Unstructured{Object: map[string]any{}} // items of lists lack the kind
	listed.SetName("listed")
	s.put("/apis/networking.k8s.io/v1/ingresses", listed)
	for _, i := range informers {
		i.HandleChanges(func(*unstructured.Unstructured) {})
	}
	g := c.group(slog.New(slog.DiscardHandler), all...)
	wait.Go(t, g.Run)
	<-g.Synced()
	if known, ok := informers["Ingress"].Get("listed"); !ok || known.GetKind() != "Ingress" {
		t.Errorf("%+v is not recognised as an Ingress", known)
	}
	in := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}}
	in.SetName("web")
	s.put("/apis/networking.k8s.io/v1/ingresses", in)
	wait.Until(t, "an Ingress is found", func() bool {
		known, ok := informers["Ingress"].Get("web")
		return ok && known.GetKind() == "Ingress"
	})
}

// TestOlderCluster uses a load-balancing cluster without HTTPLoadBalancers, or without the right to read them.
func TestOlderCluster(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		s, c := newStub(t, "36")
		s.set(func() { s.refuse["/apis/herald.dev/v1alpha1/namespaces/tenant-acme/httploadbalancers"] = status })
		i := c.RemoteInformers(slog.New(slog.DiscardHandler), "tenant-acme")
		i.Routes.HandleChanges(func(*v1alpha1.HTTPLoadBalancer) {})
		wait.Go(t, i.Run)
		<-i.Synced()
	}
}
