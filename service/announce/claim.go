package announce

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// ours says whether a Service is one that Herald announces.
func ours(s *corev1.Service, class string, isDefault bool) bool {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if s.Spec.LoadBalancerClass == nil {
		return isDefault
	}
	return *s.Spec.LoadBalancerClass == class
}

// sharing is the terms on which a Service shares its addresses.
func sharing(s *corev1.Service) (share, policy string) {
	share = s.Annotations["herald.dev/share"]
	if share != "" && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		policy = labels.SelectorFromSet(s.Spec.Selector).String()
	}
	return share, policy
}
