package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeStatus is what Herald tells of a node: its sessions, the VIPs of its own file, and the addresses of Services that it announces, or why not. There is one of the name of each node that runs Herald, and that one writes it. A node that is cut off, or whose Herald was killed, tells nothing new.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodestatuses,scope=Cluster,categories=herald
// +kubebuilder:printcolumn:name="Sessions",type=string,JSONPath=`.status.established`,description="BGP sessions that are established, of all"
// +kubebuilder:printcolumn:name="VIPs",type=string,JSONPath=`.status.up`,description="addresses of VIPs of the node's own file that are announced, of all"
// +kubebuilder:printcolumn:name="Announced",type=integer,JSONPath=`.status.announced`,description="addresses of Services that are announced by BGP"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`,description="addresses of Services that are held on a flat layer 2"
// +kubebuilder:printcolumn:name="Draining",type=string,JSONPath=`.status.draining`,description="why everything is withdrawn on purpose"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is how the node stands. It is written when that changes, every five seconds at most, and when somebody else has changed it.
	// +optional
	Status NodeState `json:"status,omitzero"`
}

// NodeState is how a node stands. It is written with all of its fields: one that was left out would stay as somebody else has set it.
type NodeState struct {
	// Version is Herald's.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version"`
	// Draining is why everything is withdrawn on purpose; empty if it is not.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Draining string `json:"draining"`
	// Established is how many BGP sessions are established, of all: `2/2`.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Established string `json:"established"`
	// Up is how many addresses of the VIPs of the node's own file are announced, of all: `1/1`.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Up string `json:"up"`
	// Announced is how many addresses of Services are announced by BGP.
	// +optional
	Announced int32 `json:"announced"`
	// Held is how many addresses of Services the node holds on a flat layer 2.
	// +optional
	Held int32 `json:"held"`
	// Sessions are the BGP sessions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Sessions []NodeSession `json:"sessions"`
	// VIPs are the addresses of the VIPs of the node's own file.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	VIPs []NodeVIP `json:"vips"`
	// Services are the addresses of Services.
	// +optional
	Services NodeServices `json:"services"`
}

// NodeSession is a BGP session.
type NodeSession struct {
	// Peer is the peer's name: its address or link.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Peer string `json:"peer"`
	// ASN is the peer's autonomous system, or `external` while that is open.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	ASN string `json:"asn,omitempty"`
	// State is `established` or `down`.
	// +required
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// Since is when the session came up or went down.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reason is why it is not established, or what it cannot carry.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// BFD is the state of the BFD session with the peer; empty if there is to be none.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	BFD string `json:"bfd,omitempty"`
}

// NodeVIP is an address of a VIP.
type NodeVIP struct {
	// Name is the VIP's.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Address is the address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	Address string `json:"address"`
	// State is how far its announcement is: `announced`, `withdrawn`, `draining`, `lingering`, `demoted`, `blocked` or `unsent`.
	// +required
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// Since is when it came there.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reason is why.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// NodeServices are the addresses of Services on a node, as ranges: `198.51.100.1-198.51.100.40`. On a flat layer 2 the others that the node stands for are in none of them. Each list has 4000 ranges at most, and so have all of `withdrawn` together.
type NodeServices struct {
	// Announced are the addresses that a peer was sent a route to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4000
	// +kubebuilder:validation:items:MaxLength=79
	Announced []string `json:"announced"`
	// Held are those that the node holds on a flat layer 2.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4000
	// +kubebuilder:validation:items:MaxLength=79
	Held []string `json:"held"`
	// Withdrawn are those that are neither, by the reason; 64 reasons at most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Withdrawn []NodeWithdrawn `json:"withdrawn"`
	// More is how many addresses the lists had no room for.
	// +optional
	More int32 `json:"more"`
}

// NodeWithdrawn are addresses that a node does not announce.
type NodeWithdrawn struct {
	// Reason is why.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// Addresses are the addresses.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4000
	// +kubebuilder:validation:items:MaxLength=79
	Addresses []string `json:"addresses"`
}

// NodeStatusList is a list of those of nodes.
//
// +kubebuilder:object:root=true
type NodeStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeStatus `json:"items"`
}
