package v1alpha1

import (
	"cmp"
	"slices"
)

// Attributes are BGP path attributes. The attributes of a VIP, a pool or a peer are merged over the `bgp` section of the node's file: lists and `prepend` add up, the other numbers replace.
type Attributes struct {
	// Communities are RFC 1997 communities, `65000:100` or a well-known name: `no-export`, `no-advertise`, `no-export-subconfed`, `no-peer`, `graceful-shutdown`, `blackhole`.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Communities []Community `json:"communities,omitempty" yaml:"communities"`
	// LargeCommunities are RFC 8092 large communities, `64512:1:2`.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	LargeCommunities []LargeCommunity `json:"largeCommunities,omitempty" yaml:"largeCommunities"`
	// MED is the multi-exit discriminator; lower is preferred by the peer.
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *uint32 `json:"med,omitempty" yaml:"med"`
	// LocalPref is sent to iBGP peers only, as 100 unless given; higher is preferred. A file without an iBGP peer must not set it.
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPref *uint32 `json:"localPref,omitempty" yaml:"localPref"`
	// Prepend repeats this node's ASN in the AS path, 0 to 10 more times. Default: 0.
	// +kubebuilder:validation:Format=int32
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Prepend int `json:"prepend,omitempty" yaml:"prepend" want:"0 to 10"`
}

// Merge returns a with the attributes of over on top: lists and prepending add up, other numbers replace.
func (a Attributes) Merge(over Attributes) Attributes {
	a.Communities = sortedSet(a.Communities, over.Communities, cmp.Compare[Community])
	a.LargeCommunities = sortedSet(a.LargeCommunities, over.LargeCommunities, LargeCommunity.Compare)
	if over.MED != nil {
		a.MED = over.MED
	}
	if over.LocalPref != nil {
		a.LocalPref = over.LocalPref
	}
	a.Prepend += over.Prepend
	return a
}

// sortedSet returns the items of both lists in order, each once.
func sortedSet[T comparable](a, b []T, order func(T, T) int) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, order)
	return slices.Compact(all)
}
