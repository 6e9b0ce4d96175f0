package assign

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// The log names the tenant and the original Service of a tenant's Service.
func TestOriginIsLogged(t *testing.T) {
	derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-acme", Name: "web-default-4f2a", Labels: map[string]string{v1alpha1.LabelTenant: "acme"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "TCPLoadBalancer", Name: "default.web", Controller: new(true)}},
	}}
	var log strings.Builder
	d := &writer{log: slog.New(slog.NewTextHandler(&log, nil))}
	d.report(t.Context(), &write{key: "tenant-acme/web-default-4f2a", read: derived, assigns: true, refusal: "no IPv6 address is free"})
	if n := strings.Count(log.String(), "service=tenant-acme/web-default-4f2a tenant=acme origin=default/web "); n != 2 {
		t.Errorf("%d lines name them, want 2:\n%s", n, log.String())
	}
}
