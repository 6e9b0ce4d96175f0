// Package v1alpha1 is the Kubernetes API of the group herald.dev: [AddressPool],
// the addresses that Services of type LoadBalancer are given and how they are
// announced, and [BGPPeer], a router that hears of them. Both are of the whole
// cluster, not of a namespace.
//
// The types are all there is: manifests/crds is generated from them, rules of
// validation included, so that an API server refuses a mistake by itself. The
// fields and their bounds are those of package config, where there are such.
//
// +kubebuilder:object:generate=true
// +groupName=herald.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1 object paths=. crd output:crd:dir=../../manifests/crds
