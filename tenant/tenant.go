// Package tenant decides what a cluster that has no load balancer of its own, a tenant, asks of the one that has, the
// load-balancing cluster, and what that makes of it. It is pure: it sends nothing and remembers nothing.
//
// The agent in the tenant's cluster makes a TCPLoadBalancer of each Service that is to have a VIP ([Ask]), and tells of
// the tenant's nodes ([NodesOf]). The manager in the load-balancing cluster checks both ([Limits]) and derives plain
// Services and EndpointSlices from them ([Derive]), which Herald's writer and speakers treat as any others.
package tenant

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Names that both sides know.
const (
	// NodesName is the name of the one TenantNodes of a namespace.
	NodesName = "nodes"
	// AgentName is that of an agent's account and of the Lease that it renews, in its namespace of the load-balancing cluster,
	// of the Lease of agents in its own cluster, and of the owner of what an agent writes.
	AgentName = "herald-agent"
	// ManagerName is that of the Lease of managers, and of the owner of what a manager writes.
	ManagerName = "herald-manager"
	// namespacePrefix comes before a tenant's name in that of its namespace.
	namespacePrefix = "tenant-"
)

// SilentAfter is how long somebody is not heard before that is said.
const SilentAfter = 90 * time.Second

// Annotations of a Service in a tenant's cluster.
const (
	// AnnotationClass with the value [ClassKubeLB] has a Service of type NodePort served, and one of type LoadBalancer
	// with the addresses that its own cluster gave it as the endpoints.
	AnnotationClass = "kubernetes.io/service.class"
	ClassKubeLB     = "kubelb"
)

// Values of spec.loadBalancerClass.
const (
	// Class is that of Services that are served from the load-balancing cluster.
	Class = v1alpha1.Group + "/remote"
	// classThere is that of the Services derived there, which is the one that speakers announce by default.
	classThere = v1alpha1.Group + "/vip"
)

// ConditionServed is the type of the condition on a tenant's Service that tells whether it has a VIP.
const ConditionServed = v1alpha1.Group + "/Served"

// Conditions of a Tenant, of which a TCPLoadBalancer has the first, and reasons of all.
const (
	ConditionReady      = "Ready"
	ConditionAgentHeard = "AgentHeard"
	ConditionNodes      = "NodesAnswer"

	ReasonConflict = "Conflict"
	ReasonHeard    = "Heard"
	ReasonSilent   = "Silent"
	ReasonServed   = "Served"
	ReasonRefused  = "Refused"
	ReasonNoNodes  = "NoNodes"
	// ReasonPending is that somebody else has not acted yet.
	ReasonPending = "Pending"
)

// ValidName reports whether a tenant can have a name, which the API server checks as well.
func ValidName(name string) bool {
	return len(name) <= 63-len(namespacePrefix) && len(validation.IsDNS1123Label(name)) == 0
}

// Namespace is that of a tenant in the load-balancing cluster.
func Namespace(tenant string) string { return namespacePrefix + tenant }

// OfNamespace is the tenant that a namespace was made for; it is not ok if the namespace was made for none.
func OfNamespace(namespace string) (tenant string, ok bool) {
	return strings.CutPrefix(namespace, namespacePrefix)
}

// LoadBalancerName is that of the TCPLoadBalancer of a Service, by its namespace and name with a slash between. A namespace has no dot in its name.
func LoadBalancerName(service string) string { return strings.Replace(service, "/", ".", 1) }

// ServiceOf is the Service that a TCPLoadBalancer is of, by its name.
func ServiceOf(loadBalancer string) string { return strings.Replace(loadBalancer, ".", "/", 1) }

// Origin is the Service of a tenant that one was derived from; of one that is no tenant's, the zero value.
type Origin struct {
	Tenant  string
	Service string // namespace/name, in the tenant's cluster
}

// OriginOf is what a Service was derived from. It takes a Service in another namespace than the tenant's for no tenant's, whatever its labels are.
func OriginOf(s *corev1.Service) Origin {
	tenant := s.Labels[v1alpha1.LabelTenant]
	owner := metav1.GetControllerOfNoCopy(s)
	if tenant == "" || s.Namespace != Namespace(tenant) || owner == nil {
		return Origin{}
	}
	return Origin{tenant, ServiceOf(owner.Name)}
}

// Attrs are what a log line about the derived Service tells of its origin.
func (o Origin) Attrs() []any {
	if o.Tenant == "" {
		return nil
	}
	return []any{"tenant", o.Tenant, "origin", o.Service}
}

// DerivedNames are those of the Service and of the EndpointSlices that can be derived from a TCPLoadBalancer.
func DerivedNames(loadBalancer string) (service string, slices []string) {
	service = derivedName(loadBalancer)
	return service, []string{sliceName(service, "IPv4"), sliceName(service, "IPv6")}
}

func sliceName(service, family string) string { return service + "-" + strings.ToLower(family) }

// derivedName is that of what is derived from a TCPLoadBalancer or a HTTPLoadBalancer. Names of Services have no dots and 63 characters at
// most, so it begins with what people look for, and ends with 128 bits of a hash: nobody can have two of one name.
func derivedName(loadBalancer string) string {
	namespace, name, _ := strings.Cut(loadBalancer, ".")
	readable := strings.NewReplacer(".", "-", "/", "-").Replace(fmt.Sprintf("%.35s", name+"-"+namespace))
	return strings.TrimRight(readable, "-") + "-" + hashOf(loadBalancer)
}

// hashOf are 128 bits of a hash, in 26 characters.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
