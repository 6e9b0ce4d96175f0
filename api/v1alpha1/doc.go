// +kubebuilder:object:generate=true
// +groupName=herald.dev

// Package v1alpha1 is the Kubernetes API of the group herald.dev: [AddressPool],
// the addresses that Services of type LoadBalancer are given and how they are
// announced, [BGPPeer], a router that hears of them, [NodeStatus], how a node stands, and
// [Tenant], another cluster that is given some; these are of the whole cluster. In the namespace of a tenant are
// [TenantNodes], [TCPLoadBalancer] and [HTTPLoadBalancer], what its agent tells of.
//
// The types are all there is: manifests/crds is generated from them, rules of
// validation included, so that an API server refuses a mistake by itself. The
// fields and their bounds are those of package config, where there are such.
//
// The rules take Kubernetes 1.31, the first that knows addresses in CEL. A server
// takes a CRD only if it can bound what each rule costs, and 1.31 cannot when two
// CIDRs are compared, or the parts of a text that was split: the rules compare
// numbers, and texts that it can tell the length of. Nor does CEL know which of
// two addresses is the lower, for which see [AddressRange].
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1 object paths=. crd output:crd:dir=../../manifests/crds
//go:generate go test ../../config/internal/reference -run TestPages -update
