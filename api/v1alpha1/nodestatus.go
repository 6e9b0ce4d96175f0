package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeStatus reports the state of a node: its sessions, the VIPs of its own file, and the addresses of Services that it announces, or why not. Each node that runs Herald writes the NodeStatus of its name. It goes stale while the node is cut off or Herald does not run.
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

	// Status is the state of the node. Herald writes it at most every five seconds: when the state changes, and when another client has changed the object.
	// +optional
	Status NodeState `json:"status,omitzero"`
}

// NodeState is the state of a node. Herald writes all of its fields: an omitted field would keep a value set by another client.
type NodeState struct {
	// Version is the version of Herald.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version"`
	// Draining is the reason of a drain, which withdraws everything; empty without a drain.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Draining string `json:"draining"`
	// Established counts the established BGP sessions, of all: `2/2`.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Established string `json:"established"`
	// Up counts the announced VIP addresses of the node's own file, of all: `1/1`.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Up string `json:"up"`
	// Announced counts the addresses of Services that the node announces by BGP.
	// +optional
	Announced int32 `json:"announced"`
	// Held counts the addresses of Services that the node holds on a flat layer 2.
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
	// +kubebuilder:validation:MaxLength=64
	Peer string `json:"peer"`
	// ASN is the peer's autonomous system number, or `external` until it is known.
	// +kubebuilder:validation:MaxLength=16
	ASN string `json:"asn,omitempty"`
	// State is `established` or `down`.
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// Since is when the session came up or went down.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reason explains why the session is not established, or which routes it cannot carry.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
	// BFD is the state of the BFD session with the peer; empty without BFD.
	// +kubebuilder:validation:MaxLength=16
	BFD string `json:"bfd,omitempty"`
}

// NodeVIP is an address of a VIP.
type NodeVIP struct {
	// Name is the VIP's.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Address is the address.
	// +kubebuilder:validation:MaxLength=39
	Address string `json:"address"`
	// State is the stage of its announcement: `announced`, `withdrawn`, `draining`, `lingering` or `demoted`. It is `blocked` or `unsent` if that stage is not reached.
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// Since is when it entered this state.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reason explains the state.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// NodeServices are the addresses of Services on a node, as ranges: `198.51.100.1-198.51.100.40`. The lists omit addresses on a flat layer 2 that other nodes hold. Each list has at most 4000 ranges, and so has `withdrawn` in total.
type NodeServices struct {
	// Announced are the addresses with a route that a peer was sent.
	// +optional
	Announced ReportedRanges `json:"announced"`
	// Held are the addresses that the node holds on a flat layer 2.
	// +optional
	Held ReportedRanges `json:"held"`
	// Withdrawn are the addresses that are neither announced nor held, by reason; at most 64 reasons.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Withdrawn []NodeWithdrawn `json:"withdrawn"`
	// More counts the addresses that the lists had no room for.
	// +optional
	More int32 `json:"more"`
}

// ReportedRanges are ranges of addresses, or single ones, as text.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=4000
// +kubebuilder:validation:items:MaxLength=79
type ReportedRanges []string

// NodeWithdrawn are addresses that a node does not announce.
type NodeWithdrawn struct {
	// Reason explains the state.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// Addresses are ranges of addresses.
	Addresses ReportedRanges `json:"addresses"`
}

// NodeStatusList is a list of NodeStatuses.
//
// +kubebuilder:object:root=true
type NodeStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeStatus `json:"items"`
}
