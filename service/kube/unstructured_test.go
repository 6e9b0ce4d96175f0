package kube

import (
	"log/slog"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/wait"
)

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
