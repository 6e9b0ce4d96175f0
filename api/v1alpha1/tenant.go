package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LabelTenant is on all objects that are made for a [Tenant]; its value is the name of that.
const LabelTenant = Group + "/tenant"

// Tenant is another cluster, whose Services this one gives VIPs to: what its agent may ask for in the namespace `tenant-NAME`, which is made for it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=herald
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`,description="nodes that answer, of those that the agent tells of and the Tenant allows"
// +kubebuilder:printcolumn:name="Services",type=string,JSONPath=`.status.services`,description="Services that are served, of those that may be"
// +kubebuilder:printcolumn:name="Routes",type=string,JSONPath=`.status.routes`,description="Ingresses, Gateways and routes that are served, of those that may be"
// +kubebuilder:printcolumn:name="Addresses",type=integer,JSONPath=`.status.addresses`,description="VIPs that Services have"
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.conditions[?(@.type=="AgentHeard")].reason`,description="whether the agent is heard"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="whether what the agent asks for is served"
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.refused[*]`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 56 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="want a name of 56 lower-case letters, digits and '-' at most: it becomes that of a namespace, after tenant-"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the tenant may ask for.
	// +required
	Spec TenantSpec `json:"spec"`
	// Status is what Herald reports of the tenant.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// TenantSpec is what an administrator allows a tenant.
type TenantSpec struct {
	// Nodes say which nodes the tenant may have.
	// +required
	Nodes TenantNodesSpec `json:"nodes"`
	// Endpoints say where else the tenant's connections may be sent. Default: nowhere.
	// +optional
	Endpoints TenantEndpoints `json:"endpoints,omitzero"`
	// Domains are those that hostnames of the tenant may be in, besides `TENANT.DOMAIN`, where DOMAIN is the manager's. No other tenant may have them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Domains []Domain `json:"domains,omitempty"`
	// Ingress says how Ingresses of the tenant are served. Default: not at all.
	// +optional
	Ingress TenantIngress `json:"ingress,omitzero"`
	// Gateway is the one that serves Gateways and routes of the tenant. Default: none.
	// +optional
	Gateway TenantGateway `json:"gateway,omitzero"`
	// Certificates say where those of the tenant's Ingresses come from. Default: from the controller.
	// +optional
	Certificates TenantCertificates `json:"certificates,omitzero"`
	// Quota bounds what the tenant may have.
	// +optional
	// +kubebuilder:default={}
	Quota TenantQuota `json:"quota,omitzero"`
}

// TenantNodesSpec is where the nodes of a tenant are, and how they are asked whether they are there.
type TenantNodesSpec struct {
	// CIDRs hold all addresses of the tenant's nodes, `10.20.0.0/24`. Nothing of this cluster, and of no other tenant, may be in them.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CIDRs []CIDR `json:"cidrs"`
	// Ports are the node ports of the tenant's cluster, from the first to the last. Default: 30000-32767.
	// +optional
	// +kubebuilder:default="30000-32767"
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$') && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="want the first and the last port, such as 30000-32767"
	Ports string `json:"ports,omitempty"`
	// Probe is how nodes are asked whether they are there.
	// +optional
	// +kubebuilder:default={}
	Probe TenantProbe `json:"probe,omitzero"`
	// MaxPerService is how many nodes connections of one Service are sent to, 1 to 100. Default: 32.
	// +optional
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPerService int32 `json:"maxPerService,omitempty"`
}

// TenantProbe asks each node of a tenant, five times a second. A node that refuses, or does not answer twice in a row, is sent no new connections while others answer.
type TenantProbe struct {
	// Protocol is how: `HTTP` wants the status 200, `TCP` a connection, and `None` takes all nodes for healthy. Default: HTTP, which kube-proxy answers.
	// +optional
	// +kubebuilder:default=HTTP
	// +kubebuilder:validation:Enum=HTTP;TCP;None
	Protocol string `json:"protocol,omitempty"`
	// Port is the port to ask. Default: 10256, kube-proxy's.
	// +optional
	// +kubebuilder:default=10256
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path is what HTTP asks for. Default: /healthz.
	// +optional
	// +kubebuilder:default=/healthz
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[-A-Za-z0-9._~/]*$')",message="want a path such as /healthz"
	Path string `json:"path,omitempty"`
}

// TenantEndpoints are where a tenant's own load balancers are.
type TenantEndpoints struct {
	// CIDRs hold the addresses of the tenant's own load balancers. Nothing of this cluster may be in them.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	CIDRs []CIDR `json:"cidrs"`
}

// Domain is a name of DNS in small letters.
//
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$')",message="want a domain of two labels or more, such as acme.example.com"
type Domain string

// TenantIngress is how Ingresses of a tenant are served.
type TenantIngress struct {
	// ClassName is the IngressClass, in this cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`
	// Annotations are the names of those that Ingresses of the tenant may have. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`
}

// TenantGateway is a Gateway of this cluster, whose listeners allow routes of the tenant's namespace.
type TenantGateway struct {
	// Namespace is its namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// TenantCertificates say who issues certificates.
type TenantCertificates struct {
	// Issuer is the name of a ClusterIssuer of cert-manager, for those that bring none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Issuer string `json:"issuer,omitempty"`
	// Own lets Ingresses bring certificates of their own. A controller may show them to whoever asks for a name that they are for, whoever has that name.
	// +optional
	Own bool `json:"own,omitempty"`
}

// TenantQuota is how much a tenant may have.
type TenantQuota struct {
	// Services is how many Services may have VIPs, 0 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Services int32 `json:"services"`
	// Routes is how many Ingresses, Gateways and routes may be served, and how many Services for them, 0 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Routes int32 `json:"routes"`
	// Nodes is how many nodes connections may be sent to and are probed, 1 to 1000. Default: 100.
	// +optional
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

// TenantStatus is what Herald reports of a tenant.
type TenantStatus struct {
	// ObservedGeneration is the generation of the Tenant that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Nodes is how many nodes answer, of those that the agent tells of and the Tenant allows: `9/10`.
	// +optional
	Nodes string `json:"nodes,omitempty"`
	// Services is how many Services are served, of those that may be: `7/100`.
	// +optional
	Services string `json:"services,omitempty"`
	// Routes is how many Ingresses, Gateways and routes are served, of those that may be: `7/100`.
	// +optional
	Routes string `json:"routes,omitempty"`
	// Addresses is how many VIPs Services have.
	// +optional
	Addresses int32 `json:"addresses,omitempty"`
	// Refused are sentences about what is not served, and why; the first ten.
	// +optional
	// +listType=atomic
	Refused []string `json:"refused,omitempty"`
	// Conditions are the tenant's: `Ready`, `AgentHeard` and `NodesAnswer`.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantNodes are the nodes of a tenant, as its agent tells of them. There is one in its namespace, of the name `nodes`.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tenantnodes,categories=herald
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'nodes'",message="want the name nodes"
type TenantNodes struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Nodes are those that connections may be sent to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	Nodes []TenantNode `json:"nodes,omitempty"`
}

// TenantNode is one of them.
type TenantNode struct {
	// Name is the node's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Addresses are its addresses, of each family one at most.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Addresses []string `json:"addresses"`
	// Zone is the zone that it is in, if it is in one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Ready is whether new connections are to be sent to it.
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// TCPLoadBalancer is a Service of a tenant that is to have a VIP or to be sent requests by name, as its agent tells of it. Its name is that of the Service after its namespace and a dot.
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

	// Spec is what the tenant's Service asks for.
	// +required
	Spec TCPLoadBalancerSpec `json:"spec"`
	// Status is what Herald reports of it.
	// +optional
	Status TCPLoadBalancerStatus `json:"status,omitzero"`
}

// TCPLoadBalancerSpec is what a Service of a tenant asks for.
type TCPLoadBalancerSpec struct {
	// Origin is the Service.
	// +required
	Origin Origin `json:"origin"`
	// Ports are those of the VIP.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Ports []LoadBalancerPort `json:"ports"`
	// Local has connections sent to `nodes` only, those that have endpoints of the Service. Default: to all nodes.
	// +optional
	Local bool `json:"local,omitempty"`
	// Nodes are the names of the nodes that have endpoints.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
	// Endpoints are the addresses of the tenant's own load balancer, which connections are sent to in place of nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Endpoints []string `json:"endpoints,omitempty"`
	// Addresses are the VIPs that it asks for, of each family one at most. Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:Format=ip
	Addresses []string `json:"addresses,omitempty"`
	// Pool is the pool that it asks for. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool,omitempty"`
	// Share is a sharing key: what has the same one, of the same tenant, gets the same VIP.
	// +optional
	// +kubebuilder:validation:MaxLength=190
	Share string `json:"share,omitempty"`
	// IPFamilies are `IPv4`, `IPv6` or both.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []string `json:"ipFamilies"`
	// Internal has no VIP given: it is there for the HTTPLoadBalancers that refer to it. Default: it has one.
	// +optional
	Internal bool `json:"internal,omitempty"`
	// Partial: an address of one of two families will do.
	// +optional
	Partial bool `json:"partial,omitempty"`
	// SessionAffinity is for how many seconds connections of one client go to the same node. Default: not at all.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SessionAffinity int32 `json:"sessionAffinity,omitempty"`
	// SourceRanges are the CIDRs of the clients that are let through. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Format=cidr
	SourceRanges []string `json:"sourceRanges,omitempty"`
}

// Origin is an object of a tenant's cluster.
type Origin struct {
	// Namespace is its namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name is its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// LoadBalancerPort is one port of a VIP.
type LoadBalancerPort struct {
	// Name is its name, if there are several.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Protocol is `TCP`, `UDP` or `SCTP`.
	// +required
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol string `json:"protocol"`
	// AppProtocol is what is spoken there, as a Service says it: `kubernetes.io/h2c`.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	AppProtocol string `json:"appProtocol,omitempty"`
	// Port is the port of the VIP.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// TargetPort is the port of the nodes, or of the endpoints.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort"`
}

// TCPLoadBalancerStatus is what Herald reports of it.
type TCPLoadBalancerStatus struct {
	// ObservedGeneration is the generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Addresses are its VIPs.
	// +optional
	// +listType=set
	Addresses []string `json:"addresses,omitempty"`
	// Conditions are its own; of type `Ready` is whether it has a VIP and somewhere to send connections.
	// +optional
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

// TenantNodesList is a list of tenants' nodes.
//
// +kubebuilder:object:root=true
type TenantNodesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantNodes `json:"items"`
}

// TCPLoadBalancerList is a list of them.
//
// +kubebuilder:object:root=true
type TCPLoadBalancerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TCPLoadBalancer `json:"items"`
}
