package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// AddressPool is a set of addresses that Services of type LoadBalancer get, and how nodes announce them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=herald
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Auto-assign",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.usage`,description="addresses in use of those there are, of IPv4 and of IPv6"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether Services are given addresses of it"
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Conflicts",type=string,JSONPath=`.status.conflicts`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the pool and its announcement.
	Spec AddressPoolSpec `json:"spec"`
	// Status is Herald's report on the pool.
	// +optional
	Status AddressPoolStatus `json:"status,omitzero"`
}

// AddressPoolSpec describes a pool and its announcement.
//
// +kubebuilder:validation:XValidation:rule="!has(self.bgp) || self.addresses.all(a, !isIP(a.find('^[^-/]+')) || ip(a.find('^[^-/]+')).family() != 4 || (isCIDR(a) ? cidr(a).prefixLength() : 32) <= self.bgp.aggregationLength)",fieldPath=".bgp.aggregationLength",message="routes of this length reach beyond the pool: want at least the length of each IPv4 CIDR, and 32 where there is a range"
// +kubebuilder:validation:XValidation:rule="!has(self.bgp) || self.addresses.all(a, !isIP(a.find('^[^-/]+')) || ip(a.find('^[^-/]+')).family() != 6 || (isCIDR(a) ? cidr(a).prefixLength() : 128) <= self.bgp.aggregationLengthV6)",fieldPath=".bgp.aggregationLengthV6",message="routes of this length reach beyond the pool: want at least the length of each IPv6 CIDR, and 128 where there is a range"
type AddressPoolSpec struct {
	// Addresses are the pool's addresses: CIDRs, `10.1.0.0/24`, and ranges from the first to the last, `10.2.0.10-10.2.0.50`. They must not overlap.
	// ---
	// Two of them overlap if and only if one holds the first address of the other. The rules of AddressRange report mistakes within one.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="!self.all(a, isCIDR(a) || isIP(a.find('^[^-]+')) && isIP(a.find('[^-]+$')) && ip(a.find('^[^-]+')).family() == ip(a.find('[^-]+$')).family()) || self.all(a, self.all(b, a == b || !(isCIDR(a) ? cidr(a).containsIP(b.find('^[^-/]+')) : a.contains(':') ? cidr(a.find('^[^-]+') + '/112').containsIP(b.find('^[^-/]+')) && a.find('^[^-]+').replace(':', ':0000').find('.{4}$') <= b.find('^[^-/]+').replace(':', ':0000').find('.{4}$') && b.find('^[^-/]+').replace(':', ':0000').find('.{4}$') <= a.find('[^-]+$').replace(':', ':0000').find('.{4}$') : !b.contains(':') && [a.find('^[^-]+').split('.'), b.find('^[^-/]+').split('.'), a.find('[^-]+$').split('.')].map(o, int(o[0]) * 16777216 + int(o[1]) * 65536 + int(o[2]) * 256 + int(o[3])).isSorted())))",message="two of the addresses overlap: want each address once"
	Addresses []AddressRange `json:"addresses"`
	// AutoAssign gives the pool's addresses to Services that ask for none. Otherwise a Service must name the pool or the address. Default: true.
	// +kubebuilder:default=true
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// Priority ranks the pools that a Service may use, -1000 to 1000: the highest is used first. Default: 0.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
	// AvoidBuggyIPs leaves out the IPv4 addresses that end in .0 and .255, which some old equipment mistakes for network or broadcast addresses. Default: false.
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
	// ServiceSelectors select the Services that may use the pool, by their labels; one matching selector is enough. Default: all.
	ServiceSelectors LabelSelectors `json:"serviceSelectors,omitempty"`
	// Namespaces name the namespaces with Services that may use the pool, in addition to `namespaceSelectors`. Default: all, if there are no `namespaceSelectors` either.
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Namespaces []Namespace `json:"namespaces,omitempty"`
	// NamespaceSelectors select namespaces by their labels, in addition to `namespaces`.
	NamespaceSelectors LabelSelectors `json:"namespaceSelectors,omitempty"`
	// BGP announces the addresses to routers, from every eligible node. Default: not by BGP.
	BGP *PoolBGP `json:"bgp,omitempty"`
	// ARP announces the addresses on a flat layer 2, by ARP and neighbour discovery, each from one node. Default: not by ARP.
	ARP *PoolARP `json:"arp,omitempty"`
}

// AddressRange is a CIDR, or the first and the last address of a range with `-` between, in their canonical form (RFC 5952).
// ---
// CEL does not compare addresses. The rules compare IPv4 addresses as numbers. An IPv6 range must lie within a /112: the rules compare the last groups as text, padded with zeros.
//
// +kubebuilder:validation:MaxLength=79
// +kubebuilder:validation:XValidation:rule="isCIDR(self) || self.matches('^[^-]+-[^-]+$') && isIP(self.find('^[^-]+')) && isIP(self.find('[^-]+$')) && ip(self.find('^[^-]+')).family() == ip(self.find('[^-]+$')).family()",message="want a CIDR such as 10.1.0.0/24, or a range of one family such as 10.2.0.10-10.2.0.50"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || string(cidr(self).masked()) == self",message="want the CIDR in its canonical form: its lowest address, with small letters and without needless zeros"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= 8",message="want a CIDR of length 8 or more"
// +kubebuilder:validation:XValidation:rule="!isIP(self.find('^[^-]+')) || !isIP(self.find('[^-]+$')) || ip.isCanonical(self.find('^[^-]+')) && ip.isCanonical(self.find('[^-]+$'))",message="want the addresses in their canonical form: with small letters and without needless zeros"
// +kubebuilder:validation:XValidation:rule="!isIP(self.find('^[^-/]+')) || ip(self.find('^[^-/]+')).isGlobalUnicast() && (!isIP(self.find('[^-]+$')) || ip(self.find('[^-]+$')).isGlobalUnicast())",message="want unicast addresses that others can reach"
// +kubebuilder:validation:XValidation:rule="!(isIP(self.find('^[^-]+')) && isIP(self.find('[^-]+$'))) || ip(self.find('^[^-]+')).family() != 6 || ip(self.find('[^-]+$')).family() != 6 || cidr(self.find('^[^-]+') + '/112').containsIP(self.find('[^-]+$'))",message="an IPv6 range lies within a /112: want CIDRs for more than that"
// +kubebuilder:validation:XValidation:rule="!(isIP(self.find('^[^-]+')) && isIP(self.find('[^-]+$'))) || ip(self.find('^[^-]+')).family() != ip(self.find('[^-]+$')).family() || (self.contains(':') ? !cidr(self.find('^[^-]+') + '/112').containsIP(self.find('[^-]+$')) || self.find('^[^-]+').replace(':', ':0000').find('.{4}$') <= self.find('[^-]+$').replace(':', ':0000').find('.{4}$') : [self.find('^[^-]+').split('.'), self.find('[^-]+$').split('.')].map(o, int(o[0]) * 16777216 + int(o[1]) * 65536 + int(o[2]) * 256 + int(o[3])).isSorted())",message="want the lower address of a range first"
type AddressRange string

// Namespace is the name of a namespace.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want the name of a namespace: lower-case letters and digits, with '-' between"
type Namespace string

// PoolBGP is how the addresses of a pool are announced by BGP.
type PoolBGP struct {
	// AggregationLength is the length of the IPv4 routes, 8 to 32: one aggregate covers all of the pool's addresses in it that are in use. Default: 32, a route for each address.
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=32
	AggregationLength int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is the length of the IPv6 routes, 8 to 128. Default: 128, a route for each address.
	// +kubebuilder:default=128
	// +kubebuilder:validation:Minimum=8
	// +kubebuilder:validation:Maximum=128
	AggregationLengthV6 int32 `json:"aggregationLengthV6,omitempty"`
	// Peers name the peers that the addresses are advertised to: a BGPPeer by its name, a peer of a node's own file by its address or interface, or as `default-ipv4` and `default-ipv6`. Default: all.
	Peers PeerNames `json:"peers,omitempty"`
	// NodeSelectors select the nodes that announce, by their labels; one matching selector is enough. Default: all.
	NodeSelectors LabelSelectors `json:"nodeSelectors,omitempty"`
	// Attributes are added to the pool's routes.
	Attributes `json:",inline"`
	// Exceptions announce some Services differently. The first exception that selects the Service of an address replaces the nodes, peers and attributes above, and the address gets a route of its own.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Exceptions []PoolBGPException `json:"exceptions,omitempty"`
}

// PeerNames name peers of nodes.
//
// +listType=set
// +kubebuilder:validation:MinItems=1
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MinLength=1
// +kubebuilder:validation:items:MaxLength=253
type PeerNames []string

// PoolBGPException is how the addresses of some Services are announced by BGP. If several Services share an address, the oldest one counts.
type PoolBGPException struct {
	// ServiceSelectors select the Services of the exception, by their labels; one matching selector is enough.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ServiceSelectors []LabelSelector `json:"serviceSelectors"`
	// Peers are as in `bgp`.
	Peers PeerNames `json:"peers,omitempty"`
	// NodeSelectors are as in `bgp`.
	NodeSelectors LabelSelectors `json:"nodeSelectors,omitempty"`
	// Attributes are added to the routes.
	Attributes `json:",inline"`
}

// PoolARP is how the addresses of a pool are announced on a flat layer 2.
type PoolARP struct {
	// Interfaces are the links on which the holder answers for an address. Default: the link with a subnet that contains it.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Interfaces []Link `json:"interfaces,omitempty"`
	// NodeSelectors select the nodes that may hold an address, by their labels; one matching selector is enough. Default: all.
	NodeSelectors LabelSelectors `json:"nodeSelectors,omitempty"`
	// Preferences rank the nodes that may hold an address: the eligible node with the highest total weight gets a free address. Default: a hash spreads the addresses evenly.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Preferences []Preference `json:"preferences,omitempty"`
	// Preempt moves an address to a node with a higher preference as soon as that node is eligible. Default: false, it stays with its holder.
	Preempt bool `json:"preempt,omitempty"`
}

// Preference adds a weight to the nodes that it selects.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelectors) || has(self.endpoints) && self.endpoints",message="want nodeSelectors, endpoints: true, or both: it is for all nodes otherwise, and so for none"
type Preference struct {
	// Weight is added to the rank of the selected nodes, 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
	// NodeSelectors select the nodes by their labels; one matching selector is enough. Default: all.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	NodeSelectors []LabelSelector `json:"nodeSelectors,omitempty"`
	// Endpoints selects only nodes that have an endpoint of the Service. Default: false.
	Endpoints bool `json:"endpoints,omitempty"`
}

// Link is the name of a link of a node.
//
// +kubebuilder:validation:MaxLength=15
// +kubebuilder:validation:XValidation:rule="self.matches('^[^/: \t]+$') && !(self in ['.', '..'])",message="want the name of a link, such as eth0"
type Link string

// AddressPoolStatus is Herald's report on a pool.
type AddressPoolStatus struct {
	// ObservedGeneration is the generation of the pool that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// IPv4 counts the IPv4 addresses.
	IPv4 *Usage `json:"ipv4,omitempty"`
	// IPv6 counts the IPv6 addresses.
	IPv6 *Usage `json:"ipv6,omitempty"`
	// Usage summarises both families, as `kubectl get` shows them: `3/254, 1/256`.
	Usage string `json:"usage,omitempty"`
	// Conflicts explain why the pool, or some of its addresses, cannot be used: another pool with the same addresses, or a Service with an address that belongs to another Service.
	// +listType=atomic
	Conflicts []string `json:"conflicts,omitempty"`
	// Conditions are the pool's conditions; `Ready` reports whether Services get addresses from it.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Usage counts the addresses of one family.
type Usage struct {
	// Capacity is the number of addresses that Services may get, a decimal number of up to 2^120.
	Capacity string `json:"capacity"`
	// Used is the number of addresses that Services have.
	Used int64 `json:"used"`
}

// ConditionReady is the condition type that reports whether Services get addresses from a pool.
const ConditionReady = "Ready"

// AddressPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPool `json:"items"`
}

// LabelSelectors select the objects that one of them selects.
//
// +listType=atomic
// +kubebuilder:validation:MaxItems=16
type LabelSelectors []LabelSelector

// LabelSelector selects objects that have all of these labels and meet all of
// these requirements; an empty one selects all.
// ---
// It is [metav1.LabelSelector] with limits, so that the API server can bound the cost of its rules.
type LabelSelector struct {
	// MatchLabels are labels and their values.
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	// MatchExpressions are requirements on labels.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is a requirement on one label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="In and NotIn need values, Exists and DoesNotExist have none"
type LabelRequirement struct {
	// Key is the label.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="want the name of a label, such as zone or example.com/zone"
	Key string `json:"key"`
	// Operator relates the label to the values: `In`, `NotIn`, `Exists` or `DoesNotExist`.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values are the operands of `In` and `NotIn`.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// Selector returns the selector in the form that matches labels. It fails if a label or value
// is invalid, which the API server does not refuse everywhere.
func (s *LabelSelector) Selector() (labels.Selector, error) {
	plain := metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, r := range s.MatchExpressions {
		plain.MatchExpressions = append(plain.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	return metav1.LabelSelectorAsSelector(&plain)
}
