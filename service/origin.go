package service

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Origin identifies the tenant's Service that a Service was derived from. The zero value means that it is no tenant's.
type Origin struct {
	Tenant  string `json:"tenant,omitempty"`
	Service string `json:"origin,omitempty"` // namespace/name, in the tenant's cluster
}

// OriginOf returns the origin of a derived Service. A Service outside the tenant's namespace has no origin, even if its labels name one.
func OriginOf(s *corev1.Service) Origin {
	tenant := s.Labels[v1alpha1.LabelTenant]
	owner := metav1.GetControllerOfNoCopy(s)
	if tenant == "" || s.Namespace != v1alpha1.TenantNamespace(tenant) || owner == nil {
		return Origin{}
	}
	return Origin{tenant, v1alpha1.ServiceOf(owner.Name)}
}

// Attrs returns the log attributes of the origin; nil if there is none.
func (o Origin) Attrs() []any {
	if o.Tenant == "" {
		return nil
	}
	return []any{"tenant", o.Tenant, "origin", o.Service}
}

// Older compares two objects by age, then by name. The older one takes precedence.
func Older[T metav1.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
