package tenant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// LoadBalancerStatus returns the status of a TCPLoadBalancer; not ok while there is nothing to report yet. refused is the
// reason that it is not served as requested. derived is its present Service, if any. unserved names the families
// without an endpoint.
func LoadBalancerStatus(lb *v1alpha1.TCPLoadBalancer, refused string, derived *corev1.Service, unserved string, now time.Time) (s v1alpha1.TCPLoadBalancerStatus, ok bool) {
	s = v1alpha1.TCPLoadBalancerStatus{ObservedGeneration: lb.Generation, Conditions: slices.Clone(lb.Status.Conditions)}
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)}
	var assigned *metav1.Condition
	if derived != nil {
		assigned = meta.FindStatusCondition(derived.Status.Conditions, service.ConditionAssigned)
		for _, a := range service.StatusAddresses(derived) {
			s.Addresses = append(s.Addresses, a.String())
		}
	}
	switch {
	case refused != "":
		c.Reason, c.Message = ReasonRefused, refused
	case derived == nil, !lb.Spec.Internal && assigned == nil:
		return s, false
	case !lb.Spec.Internal && assigned.Status != metav1.ConditionTrue:
		c.Reason, c.Message = assigned.Reason, assigned.Message
		if c.Reason == string(pool.AddressConflict) { // do not reveal other tenants' Services
			c.Message = "an address that it asks for belongs to another Service: ask for another address, or for none"
		}
	case unserved != "":
		c.Reason, c.Message = ReasonNoNodes, "no node has an endpoint for "+unserved
	case lb.Spec.Internal:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "it has endpoints"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "it has a VIP and endpoints"
	}
	meta.SetStatusCondition(&s.Conditions, c)
	return s, true
}

// AnswerTo returns the status of a Service in a tenant's cluster and its value of [service.AnnotationAssigned]. refused is
// the reason that it is not requested, lb its TCPLoadBalancer (nil if none), and timeout names the party that does not
// answer (empty if all do). With the mode NotServed it removes what an agent wrote before.
func AnswerTo(s *corev1.Service, mode Mode, refused error, lb *v1alpha1.TCPLoadBalancer, timeout string, now time.Time) (status corev1.ServiceStatus, assigned string) {
	status, assigned = *s.Status.DeepCopy(), s.Annotations[service.AnnotationAssigned]
	var addresses []string
	if lb != nil {
		addresses = lb.Status.Addresses
	}
	ingress := &status.LoadBalancer.Ingress
	switch {
	case mode == NotServed:
		meta.RemoveStatusCondition(&status.Conditions, ConditionServed)
		*ingress = slices.DeleteFunc(*ingress, func(i corev1.LoadBalancerIngress) bool { return slices.Contains(addresses, i.IP) })
		return status, ""
	case lb == nil || lb.Status.ObservedGeneration == 0: // the addresses stay
	case mode == ByStatus:
		*ingress, assigned = nil, ""
		for _, addr := range addresses {
			*ingress = append(*ingress, corev1.LoadBalancerIngress{IP: addr, IPMode: new(corev1.LoadBalancerIPModeVIP)})
		}
	default:
		assigned = strings.Join(addresses, ",")
	}
	var ready *metav1.Condition
	if lb != nil && lb.Status.ObservedGeneration == lb.Generation {
		ready = meta.FindStatusCondition(lb.Status.Conditions, ConditionReady)
	}
	if c := outcome(refused, timeout, ready); c != nil {
		c.ObservedGeneration, c.LastTransitionTime = s.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, *c)
	}
	return status, assigned
}

// outcome returns the condition Served of a tenant's object; nil if there is nothing to report. refused is the reason that
// the object is not requested. timeout names the party that does not answer. ready is the condition that the manager
// reports, if any.
func outcome(refused error, timeout string, ready *metav1.Condition) *metav1.Condition {
	c := &metav1.Condition{Type: ConditionServed, Status: metav1.ConditionFalse, Reason: ReasonRefused}
	switch {
	case refused != nil: // its previous VIPs stay
		c.Message = refused.Error()
		if r, ok := refused.(*pool.Refusal); ok {
			c.Reason = string(r.Reason)
		}
	case timeout != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonSilent, timeout
	case ready == nil:
		return nil
	default:
		c.Status, c.Reason, c.Message = ready.Status, ready.Reason, ready.Message
	}
	return c
}

// Report is the state of a tenant as a manager sees it.
type Report struct {
	Conflict      string
	Nodes, Answer int  // reported nodes within limits, and how many of them answer
	Probing       bool // the probes have no result yet
	Served        int  // served TCPLoadBalancers with VIPs
	Routes        int  // served HTTPLoadBalancers
	Addresses     int  // distinct VIPs
	Refused       []string
	AgentLast     time.Time // the agent's last heartbeat; zero if none
	AgentTimedOut bool
}

// mostRefusals limits the sentences in the status of a Tenant.
const mostRefusals = 10

// TenantStatus returns the status of a Tenant.
func TenantStatus(t *v1alpha1.Tenant, r Report, now time.Time) v1alpha1.TenantStatus {
	s := v1alpha1.TenantStatus{
		ObservedGeneration: t.Generation, Nodes: fmt.Sprintf("%d/%d", r.Answer, r.Nodes), Services: fmt.Sprintf("%d/%d", r.Served, t.Spec.Quota.Services),
		Routes:    fmt.Sprintf("%d/%d", r.Routes, t.Spec.Quota.Routes),
		Addresses: int32(r.Addresses), Refused: r.Refused, Conditions: slices.Clone(t.Status.Conditions),
	}
	if more := len(s.Refused) - mostRefusals; more > 0 {
		s.Refused = append(slices.Clone(s.Refused[:mostRefusals]), fmt.Sprintf("and %d more", more))
	}
	set := func(kind string, holds bool, reason, message string) {
		c := condition(kind, holds, reason, message)
		c.ObservedGeneration, c.LastTransitionTime = t.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	switch {
	case r.AgentLast.IsZero():
		set(ConditionAgentHeard, false, "NeverHeard", "no agent has reported yet: give it the output of `herald tenant kubeconfig`")
	case r.AgentTimedOut:
		set(ConditionAgentHeard, false, ReasonSilent, fmt.Sprintf("the agent last reported at %s: its Services do not change", r.AgentLast.UTC().Format(time.RFC3339)))
	default:
		set(ConditionAgentHeard, true, ReasonHeard, "the agent reports")
	}
	switch {
	case r.Probing:
		s.Nodes = t.Status.Nodes
	case r.Nodes == 0:
		set(ConditionNodes, false, ReasonNoNodes, "the agent reports no node that the Tenant allows")
	case r.Answer == 0:
		set(ConditionNodes, false, "NodesSilent", "no node answers: connections are sent to all of them as before")
	default:
		set(ConditionNodes, true, "Answer", "nodes answer")
	}
	switch {
	case r.Conflict != "":
		set(ConditionReady, false, ReasonConflict, r.Conflict)
	case len(r.Refused) > 0:
		set(ConditionReady, false, ReasonRefused, r.Refused[0])
	default:
		set(ConditionReady, true, ReasonServed, "all requests of the agent are served")
	}
	return s
}
