package kube

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/service"
)

// The functions of this file drop fields that Herald does not use. They may be called twice for an object.

// trimMeta keeps the names, versions, timestamps and labels of an object, and the
// annotations that Herald reads.
func trimMeta(m *metav1.ObjectMeta) {
	var annotations map[string]string
	for name, value := range m.Annotations {
		if service.Reads(name) {
			if annotations == nil {
				annotations = make(map[string]string)
			}
			annotations[name] = value
		}
	}
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Labels: m.Labels, Annotations: annotations,
	}
}

func trimService(s *corev1.Service) {
	trimOwned(&s.ObjectMeta)
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		s.Labels, s.Annotations, s.OwnerReferences = nil, nil, nil
		s.Spec = corev1.ServiceSpec{Type: s.Spec.Type}
	}
}

func trimSlice(s *discoveryv1.EndpointSlice) {
	name := s.Labels[discoveryv1.LabelServiceName]
	trimMeta(&s.ObjectMeta)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	s.Ports = nil
	for n := range s.Endpoints {
		e := &s.Endpoints[n]
		*e = discoveryv1.Endpoint{NodeName: detached(e.NodeName), Conditions: discoveryv1.EndpointConditions{
			Ready: detached(e.Conditions.Ready), Serving: detached(e.Conditions.Serving), Terminating: detached(e.Conditions.Terminating),
		}}
	}
}

// detached returns a pointer to a copy of the value, so that the object around it can be freed.
// Equal strings share their bytes.
func detached[T comparable](value *T) *T {
	if value == nil {
		return nil
	}
	return new(unique.Make(*value).Value())
}

func trimNode(n *corev1.Node) {
	trimMeta(&n.ObjectMeta)
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	var conditions []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue || c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		}
	}
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses, Conditions: conditions}
}

func trimNamespace(n *corev1.Namespace) {
	trimMeta(&n.ObjectMeta)
	n.Spec, n.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
}
