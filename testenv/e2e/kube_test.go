//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/kube"
)

// heard is what handlers were told, in order.
type heard struct {
	mu   sync.Mutex
	said []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.said)
}

// TestKube speaks to a real API server as Herald does.
func TestKube(t *testing.T) {
	k := newKubeServer(t)
	t.Run("writes", k.testWrites)
	t.Run("informers", k.testInformers) // which ends with the server
}

// testInformers follows Services through the absence of the server.
func (k *kubeServer) testInformers(t *testing.T) {
	service := func(name string) []byte {
		return fmt.Appendf(nil, "{apiVersion: v1, kind: Service, metadata: {name: %s, annotations: {a: b, herald.dev/pool: p}}, spec: {type: LoadBalancer, ports: [{port: 80}]}}", name)
	}
	k.do(t, http.MethodPost, servicesPath, service("a"), nil)
	k.do(t, http.MethodPost, servicesPath, service("b"), nil)

	i := k.connect(t).Informers(testLog(t))
	var h heard
	i.Services.Handle(kube.Handlers[*corev1.Service]{
		Set:    func(s *corev1.Service) { h.add("set %s %v", kube.Key(s), s.Annotations) },
		Delete: func(s *corev1.Service) { h.add("delete %s", kube.Key(s)) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { i.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	<-i.Synced()
	k.stopServer(t)
	k.startServer(t)
	k.do(t, http.MethodPost, servicesPath, service("c"), nil)
	k.do(t, http.MethodDelete, servicesPath+"/a", nil, nil)
	want := []string{
		"set default/a map[herald.dev/pool:p]", "set default/b map[herald.dev/pool:p]", "set default/kubernetes map[]",
		"set default/c map[herald.dev/pool:p]", "delete default/a",
	}
	eventually(t, soon, func() error {
		if got := h.all(); !slices.Equal(got, want) {
			return fmt.Errorf("heard %q, want %q", got, want)
		}
		return nil
	})
}

// testWrites has statuses written, also on top of what is not the newest.
func (k *kubeServer) testWrites(t *testing.T) {
	c := k.connect(t)
	k.balancer(t, "w", "herald.dev/pool: p, example.com/else: x", "")
	k.pool(t, "p", "{addresses: [10.0.0.0/24]}")
	read := new(corev1.Service)
	k.do(t, http.MethodGet, servicesPath+"/w", nil, read)
	mode := corev1.LoadBalancerIPModeVIP
	status := kube.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "10.0.0.1", IPMode: &mode}}},
		Conditions:   []metav1.Condition{{Type: "herald.dev/AddressAssigned", Status: metav1.ConditionTrue, Reason: "Assigned", LastTransitionTime: metav1.NewTime(time.Now())}},
	}
	is, err := c.WriteServiceStatus(t.Context(), read, status)
	must(t, err)
	if got := state(is); got != "10.0.0.1 Assigned" || len(is.Annotations) != 1 {
		t.Errorf("the Service is %q with %v", got, is.Annotations)
	}
	if _, err := c.WriteServiceStatus(t.Context(), read, kube.ServiceStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("on top of an old version: %v, want a conflict", err)
	}
	is, err = c.WriteServiceStatus(t.Context(), is, kube.ServiceStatus{})
	must(t, err)
	if len(is.Status.Conditions)+len(is.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the status is %+v, want none", is.Status)
	}
	k.do(t, http.MethodDelete, servicesPath+"/w", nil, nil)
	if _, err := c.WriteServiceStatus(t.Context(), is, status); !apierrors.IsNotFound(err) {
		t.Errorf("of a Service that is gone: %v", err)
	}

	pool, fresh := new(v1alpha1.AddressPool), new(v1alpha1.AddressPool)
	k.do(t, http.MethodGet, collection("addresspools")+"/p", nil, pool)
	must(t, c.WritePoolStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "1/256", IPv4: &v1alpha1.Usage{Capacity: "256", Used: 1}, Conflicts: []string{"x"}}))
	if err := c.WritePoolStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("on top of an old version: %v, want a conflict", err)
	}
	k.do(t, http.MethodGet, collection("addresspools")+"/p", nil, pool)
	must(t, c.WritePoolStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "0/256"}))
	k.do(t, http.MethodGet, collection("addresspools")+"/p", nil, fresh)
	if s := fresh.Status; s.Usage != "0/256" || s.IPv4 != nil || s.Conflicts != nil {
		t.Errorf("the status is %+v", s)
	}

	k.apply(t, collection("bgppeers"), "{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: r}, spec: {address: 10.0.1.254, asn: 64500}}")
	peer := new(v1alpha1.BGPPeer)
	k.do(t, http.MethodGet, collection("bgppeers")+"/r", nil, peer)
	must(t, c.WriteEvent(t.Context(), kube.Event{About: peer, Kind: "BGPPeer", APIVersion: "herald.dev/v1alpha1", Type: corev1.EventTypeWarning, Reason: "NoPassword", Message: "no", Reporter: "n1"}))
	var events corev1.EventList
	k.do(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=BGPPeer", nil, &events)
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != peer.UID {
		t.Errorf("the events are %v", events.Items)
	}
}
