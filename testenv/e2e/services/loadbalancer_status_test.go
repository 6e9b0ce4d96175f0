//go:build e2e

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/testenv/e2e/site"
	"github.com/herald-vip/herald/testenv/services"
)

// testDeleted: a deleted Service leaves no route, and its address is free.
func (b *balancers) testDeleted(t *testing.T) {
	vip := b.led(t, balancer("goes", annotated("addresses", "10.99.8.8")), "n1", "n2")
	site.Must(t, b.Remove(t.Context(), "goes"))
	b.leads(t, vip)
	b.led(t, balancer("heir", annotated("addresses", "10.99.8.8")), "n1")
}

// testFinalizer: Herald adds no finalizer, since it has nothing to clean up outside
// the cluster. A deleted Service with a foreign finalizer is announced no more, but
// keeps its address until it is gone.
func (b *balancers) testFinalizer(t *testing.T) {
	const cleanup = "service.kubernetes.io/load-balancer-cleanup"
	b.create(t, balancer("plain"), "n1")
	vip := b.address(t, "plain")
	if f := b.get(t, "plain").Finalizers; len(f) > 0 {
		t.Errorf("it has the finalizers %q", f)
	}
	b.update(t, "plain", func(s *corev1.Service) { s.Finalizers = []string{cleanup} })
	release := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), site.Soon)
		defer cancel()
		return b.API.Patch(ctx, services.Services+"/plain", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	defer func() { _ = release() }() // the test may have done so
	b.leads(t, vip, b.Members()...)
	site.Must(t, b.API.Delete(t.Context(), services.Services+"/plain"))
	b.leads(t, vip)
	b.create(t, balancer("heir", annotated("addresses", vip.String())), "n1")
	b.awaits(t, "heir", "AddressConflict")
	b.keepsStatus(t, "plain", vip)
	site.Must(t, release())
	b.keeps(t, "heir", vip)
	b.leads(t, vip, b.Members()...)
}

// testStatus: foreign conditions are kept, and a spoilt status is restored, with the same address.
func (b *balancers) testStatus(t *testing.T) {
	const (
		vip    = "10.99.8.1"
		theirs = `{"type": "Example", "status": "True", "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}`
	)
	for name, ingress := range map[string]string{
		"nothing else":        `[{"ip": "` + vip + `", "ipMode": "VIP"}]`,
		"no address":          `null`,
		"another address":     `[{"ip": "10.99.9.9", "ipMode": "VIP"}]`,
		"one too many":        `[{"ip": "` + vip + `"}, {"ip": "203.0.113.1"}]`,
		"a name":              `[{"hostname": "lb.example.com"}]`,
		"another way to it":   `[{"ip": "` + vip + `", "ipMode": "Proxy"}]`,
		"ports of an address": `[{"ip": "` + vip + `", "ports": [{"port": 80, "protocol": "TCP"}]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			b.led(t, balancer("spoilt", annotated("addresses", vip)), "n1")
			b.patch(t, services.Services+"/spoilt/status", `{"status": {"conditions": [`+theirs+`], "loadBalancer": {"ingress": `+ingress+`}}}`)
			site.Eventually(t, site.Soon, func() error {
				s := b.get(t, "spoilt")
				if got := s.Status.LoadBalancer.Ingress; len(got) != 1 || got[0].IP != vip || got[0].IPMode == nil || *got[0].IPMode != corev1.LoadBalancerIPModeVIP {
					return fmt.Errorf("it has %+v, want %s", got, vip)
				}
				theirs := slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Example" })
				return site.ErrorIf(!theirs || conditionOf(s) == nil, "the conditions are %+v, want the foreign one and Herald's", s.Status.Conditions)
			})
			b.leads(t, netip.MustParseAddr(vip), b.Members()...)
			b.leads(t, netip.MustParseAddr("10.99.9.9"))
		})
	}
	b.settled(t)
}

// testCollection: Services are deleted together, and the remaining ones are not touched.
func (b *balancers) testCollection(t *testing.T) {
	doomed := func(s *corev1.Service) { s.Labels = map[string]string{"doomed": "yes"} }
	b.create(t, balancer("doomed-1", doomed), "n1")
	b.create(t, balancer("doomed-2", doomed), "n1")
	b.create(t, balancer("stays"), "n1")
	first, two, stays := b.address(t, "doomed-1"), b.address(t, "doomed-2"), b.address(t, "stays")
	for _, vip := range []netip.Addr{first, two, stays} {
		b.leads(t, vip, b.Members()...)
	}
	b.routes.Mark()
	site.Must(t, b.API.Delete(t.Context(), services.Services+"?labelSelector=doomed%3Dyes"))
	b.leads(t, first)
	b.leads(t, two)
	b.unmoved(t, stays)
}
