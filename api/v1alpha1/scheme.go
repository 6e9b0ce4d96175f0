package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The group of the API, and its version.
const (
	Group   = "herald.dev"
	Version = "v1alpha1"
)

// GroupVersion is herald.dev/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme adds the types of this package to scheme. The error is always nil:
// a [runtime.SchemeBuilder] needs this signature.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &AddressPool{}, &AddressPoolList{}, &BGPPeer{}, &BGPPeerList{}, &NodeStatus{}, &NodeStatusList{},
		&Tenant{}, &TenantList{}, &TenantNodes{}, &TenantNodesList{}, &TCPLoadBalancer{}, &TCPLoadBalancerList{},
		&HTTPLoadBalancer{}, &HTTPLoadBalancerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
