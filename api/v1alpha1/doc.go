// +kubebuilder:object:generate=true
// +groupName=herald.dev

// Package v1alpha1 is the Kubernetes API of the group herald.dev, and the vocabulary of BGP that it shares with the
// configuration file: [Peer], [BFD], [Attributes], [ASN], [Community] and [LargeCommunity].
//
// Cluster-scoped are [AddressPool], the addresses of Services and their announcement, [BGPPeer], a router,
// [NodeStatus], the state of a node, and [Tenant], another cluster that gets addresses. A tenant's agent
// writes [TenantNodes], [TCPLoadBalancer] and [HTTPLoadBalancer] in the tenant's namespace.
//
// manifests/crds is generated from these types, validation rules included, so that the API server
// refuses mistakes without a webhook. A field is optional if its JSON tag has omitempty or its comment has +optional.
// The yaml tags are for package config.
//
// The rules need Kubernetes 1.31, the first version with addresses in CEL. A server accepts a CRD only if
// it can bound the cost of each rule. Version 1.31 cannot bound the comparison of two CIDRs or of
// the parts of a split text, so the rules compare numbers, and texts of bounded length. CEL cannot
// order two addresses either; see [AddressRange].
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1 object paths=. crd output:crd:dir=../../manifests/crds
//go:generate go test ../../config/internal/reference -run TestPages -update
