package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/bgp/asn"
)

// BGPPeer is a router that nodes have a BGP session with, besides those of their own files. It has no status: each node has a session of its own, and tells of it in its NodeStatus, by `herald status` and metrics.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=herald
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Interface",type=string,JSONPath=`.spec.interface`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.defaultGateway`,priority=1
// +kubebuilder:printcolumn:name="ASN",type=string,JSONPath=`.spec.asn`
// +kubebuilder:printcolumn:name="Hold time",type=string,JSONPath=`.spec.holdTime`,priority=1
// +kubebuilder:printcolumn:name="BFD",type=string,JSONPath=`.spec.bfd.interval`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted of the peer.
	// +required
	Spec BGPPeerSpec `json:"spec"`
}

// BGPPeerSpec is one BGP neighbour, named by its address or, unnumbered, by the interface it is reached through, or the default gateway of each node. Its fields are those of `bgp.peers[]` in a node's own file.
//
// +kubebuilder:validation:XValidation:rule="[has(self.address), has(self.interface), has(self.defaultGateway)].exists_one(given, given)",message="want one of address, interface and defaultGateway"
// +kubebuilder:validation:XValidation:rule="has(self.address) == has(oldSelf.address) && has(self.interface) == has(oldSelf.interface) && (!has(self.address) || self.address == oldSelf.address) && (!has(self.interface) || self.interface == oldSelf.interface) && (!has(self.defaultGateway) || !has(oldSelf.defaultGateway) || self.defaultGateway == oldSelf.defaultGateway)",message="address, interface and defaultGateway stay as they are: create a BGPPeer for the other router, then delete this one"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.localAddress)",fieldPath=".localAddress",message="an unnumbered session uses the link-local address: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.localAddress) || !has(self.address) || self.localAddress.contains(':') == self.address.contains(':')",fieldPath=".localAddress",message="want an address of the same family as the peer's"
// +kubebuilder:validation:XValidation:rule="!has(self.localAddress) || !has(self.defaultGateway) || self.localAddress.contains(':') == (self.defaultGateway == 'ipv6')",fieldPath=".localAddress",message="want an address of the same family as the gateway's"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.multihop) || self.multihop == 0",fieldPath=".multihop",message="an unnumbered peer is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.ttlSecurity) || self.ttlSecurity == 0",fieldPath=".ttlSecurity",message="an unnumbered peer is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.multihop) || !has(self.ttlSecurity) || self.multihop == 0 || self.ttlSecurity == 0",fieldPath=".ttlSecurity",message="multihop and ttlSecurity exclude each other: keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.asn) || self.localASN != self.asn || !has(self.multihop) || self.multihop == 0",fieldPath=".multihop",message="an iBGP session is not limited to one hop: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.asn) || self.localASN == self.asn || !has(self.localPref)",fieldPath=".localPref",message="only an iBGP peer hears it: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.bfd) || !has(self.bfd.multihop) || !self.bfd.multihop || has(self.defaultGateway) || has(self.address) && !self.address.startsWith('fe80:')",fieldPath=".bfd.multihop",message="a peer with a link-local address is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.bfd) || !has(self.bfd.multihop) || self.bfd.multihop || !(has(self.multihop) && self.multihop > 1 || has(self.ttlSecurity) && self.ttlSecurity > 1)",fieldPath=".bfd.multihop",message="the peer may be several hops away: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.nextHop4) || (has(self.families) ? 'ipv4' in self.families : has(self.interface) || has(self.defaultGateway) && self.defaultGateway == 'ipv4' || has(self.address) && !self.address.contains(':'))",fieldPath=".nextHop4",message="the session carries no ipv4 routes: add ipv4 to families or remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.nextHop6) || (has(self.families) ? 'ipv6' in self.families : has(self.interface) || has(self.defaultGateway) && self.defaultGateway == 'ipv6' || has(self.address) && self.address.contains(':'))",fieldPath=".nextHop6",message="the session carries no ipv6 routes: add ipv6 to families or remove it"
// +kubebuilder:validation:XValidation:rule="has(self.asn) != has(self.asnFrom)",message="want either asn or asnFrom, and one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.localASNFrom)",fieldPath=".localASNFrom",message="localASN and localASNFrom exclude each other: keep one"
type BGPPeerSpec struct {
	// Address is the peer's address; a link-local one needs a zone, `fe80::1%eth0`. Either this, `interface` or `defaultGateway` is required, and it stays as it is.
	// +optional
	// +kubebuilder:validation:MaxLength=61
	// +kubebuilder:validation:XValidation:rule="isIP(self.find('^[^%]+')) && self.matches('^[^%]+(%[^%/: ]+)?$') && (ip(self.find('^[^%]+')).isGlobalUnicast() || ip(self.find('^[^%]+')).isLoopback() || ip(self.find('^[^%]+')).isLinkLocalUnicast())",message="want the unicast address of a router"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || !self.contains(':') || !ip(self).isLinkLocalUnicast()",message="a link-local address needs a zone: add the link's name, as in fe80::1%eth0"
	// +kubebuilder:validation:XValidation:rule="!self.contains('%') || self.contains(':')",message="an IPv4 address has no zone: remove it"
	Address string `json:"address,omitempty"`
	// Interface makes the peer unnumbered: the router at the far end of this link, found by its IPv6 router advertisements. It stays as it is.
	// +optional
	Interface Link `json:"interface,omitempty"`
	// DefaultGateway makes the peer the default gateway of a family on each node, `ipv4` or `ipv6`: the next hop of the default route with the lowest metric in the main routing table, or each of them if there are several, wherever the route leads at the time. A gateway that is none any more keeps its session for five seconds, in which that with the new one comes up. It stays as it is.
	// +optional
	DefaultGateway Family `json:"defaultGateway,omitempty"`
	// ASN is the peer's autonomous system number; the same as the own one makes the session iBGP. `external` is any but the own one, as the peer tells it. Either this or `asnFrom` is required.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 4294967294 && !(self in [23456, 65535]) : self == 'external'",message="want the number of an autonomous system, 1 to 4294967294 and not a reserved one, or external"
	ASN asn.Peer `json:"asn,omitempty"`
	// ASNFrom says where each node has the peer's autonomous system number.
	// +optional
	ASNFrom *NodeValue `json:"asnFrom,omitempty"`
	// LocalASN is the own autonomous system number on this session. Default: the one of the node's own file; a node without one needs it, or `localASNFrom`.
	// +optional
	LocalASN *ASN `json:"localASN,omitempty"`
	// LocalASNFrom says where each node has its own autonomous system number on this session.
	// +optional
	LocalASNFrom *NodeValue `json:"localASNFrom,omitempty"`
	// Port is the peer's TCP port. Default: 179.
	// +optional
	// +kubebuilder:default=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// LocalAddress is the source address of the session, where `nodeSelectors` select one node. Default: the kernel's choice.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an address of the node"
	LocalAddress string `json:"localAddress,omitempty"`
	// PasswordSecretRef names the Secret with the TCP MD5 password (RFC 2385): its key `password`, at most 80 bytes. It is read again when it changes. Default: no password.
	// +optional
	PasswordSecretRef *SecretReference `json:"passwordSecretRef,omitempty"`
	// HoldTime is the BGP hold time in whole seconds, 3s to 65535s; keepalives are sent at a third of it. Default: 3s.
	// +optional
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}[smh])+$') && duration(self) >= duration('3s') && duration(self) <= duration('65535s')",message="want whole seconds from 3s to 65535s"
	HoldTime metav1.Duration `json:"holdTime,omitzero"`
	// Multihop is the TTL of an eBGP session to a peer that is not on a shared link, 1 to 255; 0 means directly connected. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Multihop int32 `json:"multihop,omitempty"`
	// TTLSecurity is the number of hops the peer may be away under GTSM (RFC 5082); 1 is directly connected, 0 is off, 254 the most. Not together with `multihop`. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=254
	TTLSecurity int32 `json:"ttlSecurity,omitempty"`
	// BFD watches the path to the peer (RFC 5880), which is to be configured for it too. Routes wait for BFD when a session comes up, for 5s at most. Default: off.
	// +optional
	BFD *BFD `json:"bfd,omitempty"`
	// Families are the address families of the session: `ipv4`, `ipv6`. Default: the one of the peer's address or of `defaultGateway`; both if unnumbered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Families []Family `json:"families,omitempty"`
	// NextHop4 is the next hop of IPv4 routes sent to this peer, where `nodeSelectors` select one node. Default: the session's own local address.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an IPv4 address of the node"
	NextHop4 string `json:"nextHop4,omitempty"`
	// NextHop6 is the next hop of IPv6 routes sent to this peer, where `nodeSelectors` select one node. Default: the session's own local address, or, on an IPv4 session, a global IPv6 address of the same link.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6 && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an IPv6 address of the node"
	NextHop6 string `json:"nextHop6,omitempty"`
	// NodeSelectors say which nodes have a session with the peer, by their labels: those that one of them selects. Default: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	NodeSelectors []LabelSelector `json:"nodeSelectors,omitempty"`
	// Attributes are those of the routes sent to this peer.
	Attributes `json:",inline"`
}

// ASN is the number of an autonomous system.
//
// +kubebuilder:validation:Minimum=1
// +kubebuilder:validation:Maximum=4294967294
// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="the number is reserved: want that of an autonomous system"
type ASN int64

// NodeValue is a value that each node has for itself, in a label or in an annotation of its Node.
//
// +kubebuilder:validation:XValidation:rule="has(self.label) != has(self.annotation)",message="want either label or annotation, and one of them"
type NodeValue struct {
	// Label is the label's name, `example.com/asn`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`
	// Annotation is the annotation's name, which begins with `herald.dev/`: a node knows of no others.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.startsWith('herald.dev/')",message="want an annotation whose name begins with herald.dev/"
	Annotation string `json:"annotation,omitempty"`
}

// Family is an address family of BGP routes.
//
// +kubebuilder:validation:Enum=ipv4;ipv6
type Family string

// The address families a session may carry.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// SecretReference names a Secret.
type SecretReference struct {
	// Name is the Secret's.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="want the name of a Secret: lower-case letters and digits, with '-' and '.' between"
	Name string `json:"name"`
	// Namespace is the Secret's. Default: the one that Herald runs in.
	// +optional
	Namespace Namespace `json:"namespace,omitempty"`
}

// BFD is a session of Bidirectional Forwarding Detection: a peer that has been silent for `multiplier` intervals is down.
type BFD struct {
	// Interval is the time between two packets, each way; a peer that asks for a longer one is given it. 10ms to 10s in whole microseconds; below 50ms nodes need `realtime: true`. Default: 50ms.
	// +optional
	// +kubebuilder:default="50ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,3})?ms|[0-9]{1,2}([.][0-9]{1,6})?s)$') && duration(self) >= duration('10ms') && duration(self) <= duration('10s')",message="want 10ms to 10s, such as 50ms"
	Interval metav1.Duration `json:"interval,omitzero"`
	// Multiplier is how many intervals of silence end the session, 2 to 50. Default: 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=50
	Multiplier int32 `json:"multiplier,omitempty"`
	// Multihop speaks BFD for paths over several hops (RFC 5883), as the router must: FRR does so for sessions with `multihop` or `ttlSecurity`, even on a shared link. Default: whether the session has one of these.
	// +optional
	Multihop *bool `json:"multihop,omitempty"`
}

// BGPPeerList is a list of peers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BGPPeer `json:"items"`
}
