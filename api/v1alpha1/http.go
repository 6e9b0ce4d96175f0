package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// HTTPLoadBalancer is an Ingress, a Gateway or a route of a tenant that is to be served, as its agent tells of it. Its name is the kind in small letters,
// the namespace and the name, with dots between.
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

	// Spec is what is to be served.
	// +required
	Spec HTTPLoadBalancerSpec `json:"spec"`
	// Status is what Herald reports of it.
	// +optional
	Status HTTPLoadBalancerStatus `json:"status,omitzero"`
}

// HTTPLoadBalancerSpec is an Ingress, a Gateway or a route of a tenant.
type HTTPLoadBalancerSpec struct {
	// Kind is `Ingress`, `Gateway`, `HTTPRoute`, `GRPCRoute` or `TLSRoute`.
	// +required
	// +kubebuilder:validation:Enum=Ingress;Gateway;HTTPRoute;GRPCRoute;TLSRoute
	Kind string `json:"kind"`
	// Origin is the object in the tenant's cluster.
	// +required
	Origin Origin `json:"origin"`
	// Annotations are those of an Ingress that its controller is to see. A Tenant allows none by default.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
	// Secrets are the names of those of an Ingress' `tls` whose certificates are the tenant's own.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Secrets []string `json:"secrets,omitempty"`
	// Gateways are the namespaces and names, with a slash between, of the tenant's Gateways at whose names a route without hostnames is served.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=317
	Gateways []string `json:"gateways,omitempty"`
	// Object is the specification of an Ingress or a route; of a Gateway nothing is needed.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`
}

// HTTPLoadBalancerStatus is what Herald reports of it.
type HTTPLoadBalancerStatus struct {
	// ObservedGeneration is the generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Hostnames are those that it is served at. The first one of an Ingress or a Gateway is its own, which others can be aliases of.
	// +optional
	// +listType=atomic
	Hostnames []string `json:"hostnames,omitempty"`
	// Conditions are what the gateway says of the derived route, and of type `Ready` whether it is served.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HTTPLoadBalancerList is a list of them.
//
// +kubebuilder:object:root=true
type HTTPLoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HTTPLoadBalancer `json:"items"`
}
