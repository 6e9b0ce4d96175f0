// Package tenant translates between two clusters: a tenant, which has no load balancer of its own, and the
// load-balancing cluster, which serves it. It is pure: it sends nothing and has no state.
//
// The agent in the tenant's cluster makes a TCPLoadBalancer for each Service that needs a VIP ([Ask]), and reports the
// tenant's nodes ([NodesOf]). The manager in the load-balancing cluster checks both ([Limits]) and derives plain
// Services and EndpointSlices from them ([Derive]). Herald's writer and speakers treat these like any others.
package tenant

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/herald-vip/herald/api/v1alpha1"
)

// Names that agent and manager share.
const (
	// NodesName is the name of the one TenantNodes of a namespace.
	NodesName = "nodes"
	// AgentName is the name of an agent's account and heartbeat Lease in the load-balancing cluster, of the leader Lease
	// in its own cluster, and of its field manager.
	AgentName = "herald-agent"
	// ManagerName is the name of the managers' leader Lease and of their field manager.
	ManagerName = "herald-manager"
)

// TimeoutAfter is how long a peer may not answer before a condition says so.
const TimeoutAfter = 90 * time.Second

// Annotations of a Service in a tenant's cluster.
const (
	// AnnotationClass with the value [ClassKubeLB] requests a VIP for a Service of type NodePort or LoadBalancer. The
	// latter uses the addresses that its own cluster gave it as endpoints.
	AnnotationClass = "kubernetes.io/service.class"
	ClassKubeLB     = "kubelb"
)

// Values of spec.loadBalancerClass.
const (
	// Class marks Services that the load-balancing cluster serves.
	Class = v1alpha1.Group + "/remote"
	// derivedClass is the class of derived Services: the default class of speakers.
	derivedClass = v1alpha1.Group + "/vip"
)

// ConditionServed is the type of the condition on a tenant's Service that reports whether it has a VIP.
const ConditionServed = v1alpha1.Group + "/Served"

// Condition types of a Tenant and their reasons. A TCPLoadBalancer has only the first type.
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
	// ReasonPending: another controller has not acted yet.
	ReasonPending = "Pending"
)

// ValidName reports whether name is valid for a tenant. The API server checks this as well.
func ValidName(name string) bool {
	return len(name) <= v1alpha1.LongestTenantName && len(validation.IsDNS1123Label(name)) == 0
}

// DerivedNames returns the names of the Service and of the EndpointSlices derived from a TCPLoadBalancer.
func DerivedNames(loadBalancer string) (service string, slices []string) {
	service = DerivedName(loadBalancer)
	return service, []string{sliceName(service, "IPv4"), sliceName(service, "IPv6")}
}

func sliceName(service, family string) string { return service + "-" + strings.ToLower(family) }

// DerivedName returns the name of the object derived from a TCPLoadBalancer or HTTPLoadBalancer. Names of Services have
// no dots and at most 63 characters. So the name begins with a readable part and ends with a 128-bit hash that makes it unique.
func DerivedName(loadBalancer string) string {
	namespace, name, _ := strings.Cut(loadBalancer, ".")
	readable := strings.NewReplacer(".", "-", "/", "-").Replace(fmt.Sprintf("%.35s", name+"-"+namespace))
	return strings.TrimRight(readable, "-") + "-" + hashOf(loadBalancer)
}

// hashOf returns a 128-bit hash of text as 26 characters.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
