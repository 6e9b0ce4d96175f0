package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// HTTPLoadBalancer is an Ingress, a Gateway or a route of a tenant, as its agent reports it. Its name is the kind in lower case,
// the namespace and the name, separated by dots.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=httploadbalancers,categories=herald
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Hostnames",type=string,JSONPath=`.status.hostnames`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether it is served"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HTTPLoadBalancer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the object to serve.
	Spec HTTPLoadBalancerSpec `json:"spec"`
	// Status is Herald's report on it.
	// +optional
	Status HTTPLoadBalancerStatus `json:"status,omitzero"`
}

// HTTPLoadBalancerSpec is an Ingress, a Gateway or a route of a tenant.
type HTTPLoadBalancerSpec struct {
	// Kind is `Ingress`, `Gateway`, `HTTPRoute`, `GRPCRoute` or `TLSRoute`.
	// +kubebuilder:validation:Enum=Ingress;Gateway;HTTPRoute;GRPCRoute;TLSRoute
	Kind string `json:"kind"`
	// Origin is the object in the tenant's cluster.
	Origin ObjectReference `json:"origin"`
	// Annotations are the annotations of an Ingress for its controller. A Tenant allows none by default.
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
	// Secrets are the names of the Secrets in the `tls` of an Ingress that hold the tenant's own certificates.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Secrets []string `json:"secrets,omitempty"`
	// Gateways are the tenant's Gateways as namespace/name. A route without hostnames is served at the hostnames of these.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=317
	Gateways []string `json:"gateways,omitempty"`
	// Object is the specification of an Ingress or a route; unset for a Gateway.
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// HTTPLoadBalancerStatus is Herald's report on an HTTPLoadBalancer.
type HTTPLoadBalancerStatus struct {
	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Hostnames are the names that it is served at. The first name of an Ingress or a Gateway is its own; DNS aliases can point to it.
	// +listType=atomic
	Hostnames []string `json:"hostnames,omitempty"`
	// Conditions are the gateway's conditions of the derived route, and `Ready`, which reports whether it is served.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HTTPLoadBalancerList is a list of HTTPLoadBalancers.
//
// +kubebuilder:object:root=true
type HTTPLoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HTTPLoadBalancer `json:"items"`
}
