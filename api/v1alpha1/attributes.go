package v1alpha1

// Attributes are BGP path attributes. A pool's and a peer's are laid over those of the node's own file: lists and `prepend` add up, the other numbers replace.
type Attributes struct {
	// Communities are RFC 1997 communities, `65000:100` or a well-known name: `no-export`, `no-advertise`, `no-export-subconfed`, `no-peer`, `graceful-shutdown`, `blackhole`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Communities []Community `json:"communities,omitempty"`
	// LargeCommunities are RFC 8092 large communities, `64512:1:2`.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	LargeCommunities []LargeCommunity `json:"largeCommunities,omitempty"`
	// MED is the multi-exit discriminator; lower is preferred by the peer.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MED *int64 `json:"med,omitempty"`
	// LocalPref is sent to iBGP peers only, as 100 unless given; higher is preferred.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	LocalPref *int64 `json:"localPref,omitempty"`
	// Prepend adds the own ASN this many more times to the AS path, 0 to 10. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Prepend int32 `json:"prepend,omitempty"`
}

// Community is an RFC 1997 community, in the syntax of package config.
//
// +kubebuilder:validation:MaxLength=19
// +kubebuilder:validation:XValidation:rule="self in ['no-export', 'no-advertise', 'no-export-subconfed', 'no-peer', 'graceful-shutdown', 'blackhole'] || self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':').all(n, int(n) <= 65535)",message="want a community such as 65000:100 or no-export"
type Community string

// LargeCommunity is an RFC 8092 large community, in the syntax of package config.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') && self.split(':').all(n, int(n) <= 4294967295)",message="want a large community such as 64512:1:2"
// +kubebuilder:validation:XValidation:rule="!self.matches('^0*4294967295:')",message="the number 4294967295 is reserved: want another in front"
type LargeCommunity string
