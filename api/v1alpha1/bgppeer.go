package v1alpha1

import (
	"cmp"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BGPPeer is a router that nodes have a BGP session with, besides the peers of their own files. It has no status: each node reports its session in its NodeStatus, in `herald status` and in metrics.
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

	// Spec describes the peer and its session.
	Spec Peer `json:"spec"`
}

// Peer is one BGP neighbour: a router at an address, an unnumbered one at the far end of an interface, or the node's default gateway. VIPs and pools name a file's peer by its address or interface, or as `default-ipv4` and `default-ipv6`. A BGPPeer has the fields of `bgp.peers[]` in a node's file.
//
// +kubebuilder:object:generate=false
// +kubebuilder:validation:XValidation:rule="[has(self.address), has(self.interface), has(self.defaultGateway)].exists_one(given, given)",message="want one of address, interface and defaultGateway"
// +kubebuilder:validation:XValidation:rule="has(self.address) == has(oldSelf.address) && has(self.interface) == has(oldSelf.interface) && (!has(self.address) || self.address == oldSelf.address) && (!has(self.interface) || self.interface == oldSelf.interface) && (!has(self.defaultGateway) || !has(oldSelf.defaultGateway) || self.defaultGateway == oldSelf.defaultGateway)",message="address, interface and defaultGateway cannot change: create a BGPPeer for the other router, then delete this one"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.localAddress)",fieldPath=".localAddress",message="an unnumbered session uses the link-local address: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.localAddress) || !has(self.address) || self.localAddress.contains(':') == self.address.contains(':')",fieldPath=".localAddress",message="want an address of the same family as the peer's"
// +kubebuilder:validation:XValidation:rule="!has(self.localAddress) || !has(self.defaultGateway) || self.localAddress.contains(':') == (self.defaultGateway == 'ipv6')",fieldPath=".localAddress",message="want an address of the same family as the gateway's"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.multihop) || self.multihop == 0",fieldPath=".multihop",message="an unnumbered peer is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.interface) || !has(self.ttlSecurity) || self.ttlSecurity == 0",fieldPath=".ttlSecurity",message="an unnumbered peer is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.multihop) || !has(self.ttlSecurity) || self.multihop == 0 || self.ttlSecurity == 0",fieldPath=".ttlSecurity",message="multihop and ttlSecurity exclude each other: keep one"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.asn) || self.localASN != self.asn || !has(self.multihop) || self.multihop == 0",fieldPath=".multihop",message="an iBGP session is not limited to one hop: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.asn) || self.localASN == self.asn || !has(self.localPref)",fieldPath=".localPref",message="only iBGP peers receive it: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.bfd) || !has(self.bfd.multihop) || !self.bfd.multihop || has(self.defaultGateway) || has(self.address) && !self.address.startsWith('fe80:')",fieldPath=".bfd.multihop",message="a peer with a link-local address is always on the link: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.bfd) || !has(self.bfd.multihop) || self.bfd.multihop || !(has(self.multihop) && self.multihop > 1 || has(self.ttlSecurity) && self.ttlSecurity > 1)",fieldPath=".bfd.multihop",message="the peer may be several hops away: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.nextHop4) || (has(self.families) ? 'ipv4' in self.families : has(self.interface) || has(self.defaultGateway) && self.defaultGateway == 'ipv4' || has(self.address) && !self.address.contains(':'))",fieldPath=".nextHop4",message="the session carries no ipv4 routes: add ipv4 to families or remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.nextHop6) || (has(self.families) ? 'ipv6' in self.families : has(self.interface) || has(self.defaultGateway) && self.defaultGateway == 'ipv6' || has(self.address) && self.address.contains(':'))",fieldPath=".nextHop6",message="the session carries no ipv6 routes: add ipv6 to families or remove it"
// +kubebuilder:validation:XValidation:rule="has(self.asn) != has(self.asnFrom)",message="want either asn or asnFrom, and one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.localASN) || !has(self.localASNFrom)",fieldPath=".localASNFrom",message="localASN and localASNFrom exclude each other: keep one"
type Peer struct {
	// Address is the peer's address; a link-local one needs a zone, `fe80::1%eth0`. Either this, `interface` or `defaultGateway` is required. It cannot change in a BGPPeer.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=61
	// +kubebuilder:validation:XValidation:rule="isIP(self.find('^[^%]+')) && self.matches('^[^%]+(%[^%/: ]+)?$') && (ip(self.find('^[^%]+')).isGlobalUnicast() || ip(self.find('^[^%]+')).isLoopback() || ip(self.find('^[^%]+')).isLinkLocalUnicast())",message="want the unicast address of a router"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || !self.contains(':') || !ip(self).isLinkLocalUnicast()",message="a link-local address needs a zone: add the link's name, as in fe80::1%eth0"
	// +kubebuilder:validation:XValidation:rule="!self.contains('%') || self.contains(':')",message="an IPv4 address has no zone: remove it"
	Address netip.Addr `json:"address,omitzero" yaml:"address"`
	// Interface makes the peer unnumbered: the router at the far end of this link, found by its IPv6 router advertisements. It cannot change in a BGPPeer.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/: \t]+$') && !(self in ['.', '..'])",message="want the name of a link, such as eth0"
	Interface string `json:"interface,omitempty" yaml:"interface"`
	// DefaultGateway makes the peer the node's default gateway, `ipv4` or `ipv6`: each next hop of the default route with the lowest metric in the main routing table. Sessions follow the route; the one with a former gateway stays up for five seconds, while that with the new gateway comes up. It cannot change in a BGPPeer.
	DefaultGateway Family `json:"defaultGateway,omitempty" yaml:"defaultGateway"`
	// ASN is the peer's autonomous system number; this node's own number makes the session iBGP. `external` accepts any other number that the peer sends. Default: none, required unless a BGPPeer has `asnFrom`.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 4294967294 && !(self in [23456, 65535]) : self == 'external'",message="want the number of an autonomous system, 1 to 4294967294 and not a reserved one, or external"
	ASN ASN `json:"asn,omitempty" yaml:"asn"`
	// ASNFrom takes the peer's autonomous system number from a label or an annotation of each Node.
	ASNFrom *NodeValue `json:"asnFrom,omitempty" yaml:"-"`
	// LocalASN is the node's own autonomous system number on this session. Default: `bgp.asn` of the node's file; a node without one needs this or `localASNFrom`.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=integer
	// +kubebuilder:validation:Format=int64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967294
	// +kubebuilder:validation:XValidation:rule="!(self in [23456, 65535])",message="the number is reserved: want that of an autonomous system"
	LocalASN ASN `json:"localASN,omitempty" yaml:"-"`
	// LocalASNFrom takes the node's own autonomous system number on this session from a label or an annotation of each Node.
	LocalASNFrom *NodeValue `json:"localASNFrom,omitempty" yaml:"-"`
	// Port is the peer's TCP port. Default: 179.
	// +kubebuilder:default=179
	// +kubebuilder:validation:Format=int32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port uint16 `json:"port,omitempty" yaml:"port" default:"179" want:"1 to 65535"`
	// LocalAddress is the source address of the session; in a BGPPeer it needs `nodeSelectors` that select one node. Default: the kernel's choice.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an address of the node"
	LocalAddress netip.Addr `json:"localAddress,omitzero" yaml:"localAddress"`
	// PasswordFile holds the TCP MD5 password (RFC 2385): one line of at most 80 bytes. Herald reads it again when it changes.
	PasswordFile string `json:"-" yaml:"passwordFile"`
	// PasswordSecretRef names the Secret with the TCP MD5 password (RFC 2385): its key `password`, at most 80 bytes. Herald reads it again when it changes. Default: no password.
	PasswordSecretRef *SecretReference `json:"passwordSecretRef,omitempty" yaml:"-"`
	// Password is the content of the password file or the Secret.
	Password string `json:"-" yaml:"-"`
	// HoldTime is the BGP hold time in whole seconds, 3s to 65535s; keepalives are sent at a third of it. Default: 3s.
	// +optional
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}[smh])+$') && duration(self) >= duration('3s') && duration(self) <= duration('65535s')",message="want whole seconds from 3s to 65535s"
	HoldTime metav1.Duration `json:"holdTime,omitzero" yaml:"holdTime" default:"3s" want:"3s to 65535s"`
	// ConnectRetry is the longest wait between two attempts to connect to this peer (RFC 4271, section 8), in whole seconds, 2s to 60s. Default: `bgp.connectRetry` of the node's file, 2s without one.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}[smh])+$') && duration(self) >= duration('2s') && duration(self) <= duration('60s')",message="want whole seconds from 2s to 60s"
	ConnectRetry *metav1.Duration `json:"connectRetry,omitempty" yaml:"connectRetry" want:"2s to 60s"`
	// Multihop is the TTL of an eBGP session to a peer that is not on a shared link, 1 to 255; 0 means directly connected. Default: 0.
	// +kubebuilder:validation:Format=int32
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Multihop uint8 `json:"multihop,omitempty" yaml:"multihop"`
	// TTLSecurity is the number of hops the peer may be away under GTSM (RFC 5082); 1 is directly connected, 0 is off, 254 the most. It excludes `multihop`. Default: 0.
	// +kubebuilder:validation:Format=int32
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=254
	TTLSecurity uint8 `json:"ttlSecurity,omitempty" yaml:"ttlSecurity" want:"0 to 254"`
	// BFD watches the path to the peer (RFC 5880); configure it on the peer as well. When a session comes up, its routes wait for BFD for at most 5s. Default: off.
	BFD *BFD `json:"bfd,omitempty" yaml:"bfd"`
	// Families are the address families of the session: `ipv4`, `ipv6`. Default: the family of the peer's address or of `defaultGateway`; both if unnumbered.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Families []Family `json:"families,omitempty" yaml:"families" want:"ipv4 or ipv6"`
	// NextHop4 is the next hop of IPv4 routes sent to this peer; in a BGPPeer it needs `nodeSelectors` that select one node. Default: the session's own local address.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an IPv4 address of the node"
	NextHop4 netip.Addr `json:"nextHop4,omitzero" yaml:"nextHop4"`
	// NextHop6 is the next hop of IPv6 routes sent to this peer; in a BGPPeer it needs `nodeSelectors` that select one node. Default: the session's own local address, or, on an IPv4 session, a global IPv6 address of the same link.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6 && (ip(self).isGlobalUnicast() || ip(self).isLoopback() || ip(self).isLinkLocalUnicast())",message="want an IPv6 address of the node"
	NextHop6 netip.Addr `json:"nextHop6,omitzero" yaml:"nextHop6"`
	// NodeSelectors select the nodes that have a session with the peer, by their labels; one matching selector is enough. Default: all nodes.
	NodeSelectors LabelSelectors `json:"nodeSelectors,omitempty" yaml:"-"`
	// Attributes are added to the routes sent to this peer.
	Attributes `json:",inline" yaml:",inline"`
}

// Name identifies the peer on its node: its address, its interface, or which default gateway it is.
func (p Peer) Name() string {
	switch {
	case p.Address.IsValid():
		return p.Address.String()
	case p.DefaultGateway != "":
		return GatewayName(p.DefaultGateway)
	}
	return p.Interface
}

// GatewayName returns the name of the peers that are default gateways of a family.
func GatewayName(f Family) string { return "default-" + string(f) }

// Carries reports whether the session carries routes of a family.
func (p Peer) Carries(f Family) bool { return slices.Contains(p.Families, f) }

// DeepCopy returns a copy that shares no memory with p; nil if p is nil.
func (p *Peer) DeepCopy() *Peer {
	if p == nil {
		return nil
	}
	out := new(Peer)
	p.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies p into out. The generator cannot copy a [netip.Addr].
func (p *Peer) DeepCopyInto(out *Peer) {
	*out = *p
	out.ASNFrom, out.LocalASNFrom = p.ASNFrom.DeepCopy(), p.LocalASNFrom.DeepCopy()
	out.PasswordSecretRef = p.PasswordSecretRef.DeepCopy()
	out.BFD = p.BFD.DeepCopy()
	if p.ConnectRetry != nil {
		out.ConnectRetry = new(*p.ConnectRetry)
	}
	out.Families = slices.Clone(p.Families)
	out.NodeSelectors = p.NodeSelectors.DeepCopy()
	p.Attributes.DeepCopyInto(&out.Attributes)
}

// NodeValue is a value that each node has in a label or an annotation of its Node.
//
// +kubebuilder:validation:XValidation:rule="has(self.label) != has(self.annotation)",message="want either label or annotation, and one of them"
type NodeValue struct {
	// Label is the label's name, `example.com/asn`.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`
	// Annotation is the annotation's name, which begins with `herald.dev/`; nodes read no others.
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
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="want the name of a Secret: lower-case letters and digits, with '-' and '.' between"
	Name string `json:"name"`
	// Namespace is the Secret's. Default: Herald's own namespace.
	Namespace Namespace `json:"namespace,omitempty"`
}

// BFD is a session of Bidirectional Forwarding Detection: a peer that sends nothing for `multiplier` intervals is down.
type BFD struct {
	// Interval is the time between two packets, each way; the longer of both ends' intervals applies. 10ms to 10s in whole microseconds; below 50ms nodes need `realtime: true`. Default: 50ms.
	// +optional
	// +kubebuilder:default="50ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,3})?ms|[0-9]{1,2}([.][0-9]{1,6})?s)$') && duration(self) >= duration('10ms') && duration(self) <= duration('10s')",message="want 10ms to 10s, such as 50ms"
	Interval metav1.Duration `json:"interval,omitzero" yaml:"interval" default:"50ms" want:"10ms to 10s"`
	// Multiplier is the number of intervals without a packet that ends the session, 2 to 50. Default: 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Format=int32
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=50
	Multiplier uint8 `json:"multiplier,omitempty" yaml:"multiplier" default:"3" want:"2 to 50"`
	// Multihop speaks BFD for paths over several hops (RFC 5883). The router must agree: FRR does so for sessions with `multihop` or `ttlSecurity`, even on a shared link. Default: whether the session has one of these.
	Multihop *bool `json:"multihop,omitempty" yaml:"multihop"`
}

// BGPPeerList is a list of peers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BGPPeer `json:"items"`
}

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
