//go:build e2e

package services

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestKube writes statuses to a real API server as Herald does, also over outdated versions.
func TestKube(t *testing.T) {
	k := site.StartAPIServer(t)
	c := k.Connect(t)
	createBalancer(t, k, "w", "herald.dev/pool: p, example.com/else: x", "")
	createPool(t, k, "p", "{addresses: [10.0.0.0/24]}")
	read := new(corev1.Service)
	k.Do(t, http.MethodGet, servicesPath+"/w", nil, read)
	mode := corev1.LoadBalancerIPModeVIP
	status := corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "10.0.0.1", IPMode: &mode}}},
		Conditions:   []metav1.Condition{{Type: "herald.dev/AddressAssigned", Status: metav1.ConditionTrue, Reason: "Assigned", LastTransitionTime: metav1.NewTime(time.Now())}},
	}
	written, err := c.WriteServiceStatus(t.Context(), read, status)
	site.Must(t, err)
	if got := state(written); got != "10.0.0.1 Assigned" || len(written.Annotations) != 1 {
		t.Errorf("the Service is %q, the error %v", got, written.Annotations)
	}
	if _, err := c.WriteServiceStatus(t.Context(), read, corev1.ServiceStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("for an old version: %v, want a conflict", err)
	}
	written, err = c.WriteServiceStatus(t.Context(), written, corev1.ServiceStatus{})
	site.Must(t, err)
	if len(written.Status.Conditions)+len(written.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("the status is %+v, want it empty", written.Status)
	}
	k.Do(t, http.MethodDelete, servicesPath+"/w", nil, nil)
	if _, err := c.WriteServiceStatus(t.Context(), written, status); !apierrors.IsNotFound(err) {
		t.Errorf("for a deleted Service: %v", err)
	}

	pool, fresh := new(v1alpha1.AddressPool), new(v1alpha1.AddressPool)
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, pool)
	site.Must(t, c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "1/256", IPv4: &v1alpha1.Usage{Capacity: "256", Used: 1}, Conflicts: []string{"x"}}))
	if err := c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{}); !apierrors.IsConflict(err) {
		t.Errorf("for an old version: %v, want a conflict", err)
	}
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, pool)
	site.Must(t, c.WriteStatus(t.Context(), pool, v1alpha1.AddressPoolStatus{Usage: "0/256"}))
	k.Do(t, http.MethodGet, site.HeraldPath("addresspools")+"/p", nil, fresh)
	if s := fresh.Status; s.Usage != "0/256" || s.IPv4 != nil || s.Conflicts != nil {
		t.Errorf("the status is %+v", s)
	}

	k.Apply(t, site.HeraldPath("bgppeers"), "{apiVersion: herald.dev/v1alpha1, kind: BGPPeer, metadata: {name: r}, spec: {address: 10.0.1.254, asn: 64500}}")
	peer := new(v1alpha1.BGPPeer)
	k.Do(t, http.MethodGet, site.HeraldPath("bgppeers")+"/r", nil, peer)
	site.Must(t, c.WriteEvent(t.Context(), kube.Event{About: peer, Kind: "BGPPeer", APIVersion: "herald.dev/v1alpha1", Type: corev1.EventTypeWarning, Reason: "NoPassword", Message: "no", Reporter: "n1"}))
	var events corev1.EventList
	k.Do(t, http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=BGPPeer", nil, &events)
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != peer.UID {
		t.Errorf("the events are %v", events.Items)
	}
}
