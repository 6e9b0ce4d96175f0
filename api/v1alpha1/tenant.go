package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelTenant is the label of all objects made for a [Tenant]; its value is the tenant's name.
const LabelTenant = Group + "/tenant"

// Tenant is another cluster that this cluster gives VIPs to. It limits the requests of the tenant's agent in the namespace `tenant-NAME`, which Herald creates.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=herald
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`,description="nodes that answer, of the nodes that the agent lists and the Tenant allows"
// +kubebuilder:printcolumn:name="Services",type=string,JSONPath=`.status.services`,description="Services that are served, of the quota"
// +kubebuilder:printcolumn:name="Routes",type=string,JSONPath=`.status.routes`,description="Ingresses, Gateways and routes that are served, of the quota"
// +kubebuilder:printcolumn:name="Addresses",type=integer,JSONPath=`.status.addresses`,description="VIPs that Services have"
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.conditions[?(@.type=="AgentHeard")].reason`,description="whether the agent reports"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether the agent's requests are served"
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.refused[*]`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 56 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want a name of 56 lower-case letters, digits and '-' at most: it becomes that of a namespace, after tenant-"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the tenant's permissions.
	Spec TenantSpec `json:"spec"`
	// Status is Herald's report on the tenant.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// TenantSpec is the permissions that an administrator grants a tenant.
type TenantSpec struct {
	// Nodes bound the addresses and ports of the tenant's nodes.
	Nodes TenantNodesSpec `json:"nodes"`
	// Endpoints allow other destinations of the tenant's connections. Default: none.
	// +optional
	Endpoints TenantEndpoints `json:"endpoints,omitzero"`
	// Domains may contain hostnames of the tenant, in addition to `TENANT.DOMAIN`, where DOMAIN is the manager's. No other tenant may have the same domains.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Domains []Domain `json:"domains,omitempty"`
	// Ingress configures how the tenant's Ingresses are served. Default: not at all.
	// +optional
	Ingress TenantIngress `json:"ingress,omitzero"`
	// Gateway serves the Gateways and routes of the tenant. Listeners of the Gateway must allow routes from the tenant's namespace. Default: none.
	// +optional
	Gateway ObjectReference `json:"gateway,omitzero"`
	// Certificates configure the source of the certificates of the tenant's Ingresses. Default: the controller.
	// +optional
	Certificates TenantCertificates `json:"certificates,omitzero"`
	// Quota bounds the number of objects that are served.
	// +optional
	// +kubebuilder:default={}
	Quota TenantQuota `json:"quota,omitzero"`
}

// TenantNodesSpec is the addresses and ports of a tenant's nodes, and how Herald probes them.
type TenantNodesSpec struct {
	// CIDRs contain all addresses of the tenant's nodes, `10.20.0.0/24`. Addresses of this cluster and of other tenants must lie outside.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CIDRs []CIDR `json:"cidrs"`
	// Ports are the node ports of the tenant's cluster, from the first to the last. Default: 30000-32767.
	// +kubebuilder:default="30000-32767"
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="want the first and the last port, such as 30000-32767"
	Ports string `json:"ports,omitempty"`
	// Probe configures the health probes of the nodes.
	// +optional
	// +kubebuilder:default={}
	Probe TenantProbe `json:"probe,omitzero"`
	// MaxPerService limits the nodes that one Service's connections are sent to, 1 to 100. Default: 32.
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPerService int32 `json:"maxPerService,omitempty"`
}

// TenantProbe probes each node of a tenant five times a second. A node that refuses, or times out twice in a row, gets no new connections while other nodes answer.
type TenantProbe struct {
	// Protocol is the kind of probe: `HTTP` requires the status 200, `TCP` a connection, and `None` treats all nodes as healthy. Default: HTTP, which kube-proxy answers.
	// +kubebuilder:default=HTTP
	// +kubebuilder:validation:Enum=HTTP;TCP;None
	Protocol string `json:"protocol,omitempty"`
	// Port is the port to probe. Default: 10256, kube-proxy's.
	// +kubebuilder:default=10256
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path is the path of the HTTP request. Default: /healthz.
	// +kubebuilder:default=/healthz
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[-A-Za-z0-9._~/]*$')",message="want a path such as /healthz"
	Path string `json:"path,omitempty"`
}

// TenantEndpoints are where a tenant's own load balancers are.
type TenantEndpoints struct {
	// CIDRs contain the addresses of the tenant's own load balancers. Addresses of this cluster must lie outside.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CIDRs []CIDR `json:"cidrs"`
}

// Domain is a DNS name in lower case.
//
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$')",message="want a domain of two labels or more, such as acme.example.com"
type Domain string

// TenantIngress configures how Ingresses of a tenant are served.
type TenantIngress struct {
	// ClassName is the IngressClass in this cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`
	// Annotations are the names of the annotations that Ingresses of the tenant may have. Default: none.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`
}

// TenantCertificates configure the issuer of certificates.
type TenantCertificates struct {
	// Issuer is the name of a ClusterIssuer of cert-manager, for Ingresses without a certificate of their own.
	// +kubebuilder:validation:MaxLength=253
	Issuer string `json:"issuer,omitempty"`
	// Own lets Ingresses bring certificates of their own. The ingress controller may serve such a certificate for any matching host name, even another tenant's.
	Own bool `json:"own,omitempty"`
}

// TenantQuota bounds the number of objects that are served for a tenant.
type TenantQuota struct {
	// Services limits the Services with VIPs, 0 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Services int32 `json:"services"`
	// Routes limits the Ingresses, Gateways and routes that are served, and separately the Services for them, 0 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Routes int32 `json:"routes"`
	// Nodes limits the nodes that are probed and get connections, 1 to 1000. Default: 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Nodes int32 `json:"nodes,omitempty"`
}

// CIDR is an address block, such as 10.20.0.0/24 or fd00:20::/64.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="want a CIDR in its canonical form, such as 10.20.0.0/24 or fd00:20::/64"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= 8 && cidr(self).ip().isGlobalUnicast()",message="want addresses that others can reach, and a length of 8 or more"
type CIDR string

// TenantStatus is Herald's report on a tenant.
type TenantStatus struct {
	// ObservedGeneration is the generation of the Tenant that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes counts the nodes that answer, of the nodes that the agent lists and the Tenant allows: `9/10`.
	Nodes string `json:"nodes,omitempty"`
	// Services counts the Services that are served, of the quota: `7/100`.
	Services string `json:"services,omitempty"`
	// Routes counts the Ingresses, Gateways and routes that are served, of the quota: `7/100`.
	Routes string `json:"routes,omitempty"`
	// Addresses counts the VIPs of Services.
	Addresses int32 `json:"addresses,omitempty"`
	// Refused names the first ten objects that are not served, each with its reason.
	// +listType=atomic
	Refused []string `json:"refused,omitempty"`
	// Conditions are the tenant's: `Ready`, `AgentHeard` and `NodesAnswer`.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantNodes lists the nodes of a tenant, as its agent reports them. The tenant's namespace has one, named `nodes`.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tenantnodes,categories=herald
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'nodes'",message="want the name nodes"
type TenantNodes struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Nodes are the nodes that may get connections.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Nodes []TenantNode `json:"nodes,omitempty"`
}

// TenantNode is one node of a tenant.
type TenantNode struct {
	// Name is the node's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Addresses are the node's addresses, at most one of each family.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Addresses []string `json:"addresses"`
	// Zone is the node's zone, if it has one.
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Ready reports whether the node may get new connections.
	Ready bool `json:"ready,omitempty"`
}

// TCPLoadBalancer is a Service of a tenant that needs a VIP or gets requests by host name, as its agent reports it. Its name is the Service's namespace, a dot, and the Service's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tcploadbalancers,categories=herald
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether it has a VIP and somewhere to send connections"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TCPLoadBalancer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request of the tenant's Service.
	Spec TCPLoadBalancerSpec `json:"spec"`
	// Status is Herald's report on it.
	// +optional
	Status TCPLoadBalancerStatus `json:"status,omitzero"`
}

// TCPLoadBalancerSpec is the request of a tenant's Service.
type TCPLoadBalancerSpec struct {
	// Origin is the Service.
	Origin ObjectReference `json:"origin"`
	// Ports are the ports of the VIP.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Ports []LoadBalancerPort `json:"ports"`
	// Local restricts connections to `nodes`, the nodes with endpoints of the Service. Default: all nodes get connections.
	Local bool `json:"local,omitempty"`
	// Nodes are the names of the nodes with endpoints.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
	// Endpoints are the addresses of the tenant's own load balancer, which gets the connections instead of nodes.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Endpoints []string `json:"endpoints,omitempty"`
	// Addresses are the requested VIPs, at most one of each family. Default: any.
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Addresses []string `json:"addresses,omitempty"`
	// Pool is the requested pool. Default: any.
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// Share is a sharing key: Services of one tenant with the same key get the same VIP.
	// +kubebuilder:validation:MaxLength=190
	Share string `json:"share,omitempty"`
	// IPFamilies are `IPv4`, `IPv6` or both.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []string `json:"ipFamilies"`
	// Internal requests no VIP: only HTTPLoadBalancers refer to the Service. Default: it gets a VIP.
	Internal bool `json:"internal,omitempty"`
	// Partial accepts an address of one of two families.
	Partial bool `json:"partial,omitempty"`
	// SessionAffinity is the time in seconds during which connections of one client go to the same node. Default: no affinity.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SessionAffinity int32 `json:"sessionAffinity,omitempty"`
	// SourceRanges are the CIDRs of the allowed clients. Default: all.
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Format=cidr
	SourceRanges []string `json:"sourceRanges,omitempty"`
}

// ObjectReference identifies an object of a known kind.
type ObjectReference struct {
	// Namespace is its namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// LoadBalancerPort is one port of a VIP.
type LoadBalancerPort struct {
	// Name is its name, if there are several.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Protocol is `TCP`, `UDP` or `SCTP`.
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol string `json:"protocol"`
	// AppProtocol is the application protocol, as in a Service: `kubernetes.io/h2c`.
	// +kubebuilder:validation:MaxLength=317
	AppProtocol string `json:"appProtocol,omitempty"`
	// Port is the port of the VIP.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// TargetPort is the port of the nodes, or of the endpoints.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort"`
}

// TCPLoadBalancerStatus is Herald's report on a TCPLoadBalancer.
type TCPLoadBalancerStatus struct {
	// ObservedGeneration is the generation that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Addresses are its VIPs.
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// Conditions are its conditions; `Ready` reports whether it has a VIP and a node or endpoint to send connections to.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantList is a list of tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tenant `json:"items"`
}

// TenantNodesList is a list of TenantNodes.
//
// +kubebuilder:object:root=true
type TenantNodesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantNodes `json:"items"`
}

// TCPLoadBalancerList is a list of TCPLoadBalancers.
//
// +kubebuilder:object:root=true
type TCPLoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TCPLoadBalancer `json:"items"`
}

// tenantNamespacePrefix plus a tenant's name is the name of its namespace.
const tenantNamespacePrefix = "tenant-"

// LongestTenantName is the length that leaves room for the prefix of the tenant's namespace.
const LongestTenantName = 63 - len(tenantNamespacePrefix)

// TenantNamespace returns the namespace of a tenant in the load-balancing cluster.
func TenantNamespace(tenant string) string { return tenantNamespacePrefix + tenant }

// TenantOf returns the tenant of a namespace; not ok if it is no tenant's namespace.
func TenantOf(namespace string) (tenant string, ok bool) {
	return strings.CutPrefix(namespace, tenantNamespacePrefix)
}

// LoadBalancerName returns the name of the TCPLoadBalancer of a Service, given as namespace/name. Names of namespaces
// have no dots.
func LoadBalancerName(service string) string { return strings.Replace(service, "/", ".", 1) }

// ServiceOf returns the Service of a TCPLoadBalancer as namespace/name: the inverse of [LoadBalancerName].
func ServiceOf(loadBalancer string) string { return strings.Replace(loadBalancer, ".", "/", 1) }
