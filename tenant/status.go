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

// LoadBalancerStatus is what the manager reports of a TCPLoadBalancer: refused says why it is not served as it asks, derived is the
// Service as it is, nil if there is none, and unserved names the families that have no endpoint, empty if all have. It is not ok
// while there is nothing to say yet.
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
		if c.Reason == string(pool.AddressConflict) { // whose it is, is nobody else's business
			c.Message = "an address that it asks for is another's: ask for another one, or for none"
		}
	case unserved != "":
		c.Reason, c.Message = ReasonNoNodes, "no node has anything to serve it by "+unserved
	case lb.Spec.Internal:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "there is somewhere to send requests"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonServed, "it has a VIP, and somewhere to send connections"
	}
	meta.SetStatusCondition(&s.Conditions, c)
	return s, true
}

// AnswerTo is the status to write of a Service in a tenant's cluster, and the value of [service.AnnotationAssigned]: refused says why it is not
// asked for, lb is what was asked for as it is, nil if nothing is, and silent says who has not been heard, empty if all are. With the mode
// NotServed it is that of a Service that is not served any more.
func AnswerTo(s *corev1.Service, mode Mode, refused error, lb *v1alpha1.TCPLoadBalancer, silent string, now time.Time) (status corev1.ServiceStatus, assigned string) {
	status, assigned = *s.Status.DeepCopy(), s.Annotations[service.AnnotationAssigned]
	var addresses []string
	if lb != nil {
		addresses = lb.Status.Addresses
	}
	is := &status.LoadBalancer.Ingress
	switch {
	case mode == NotServed:
		meta.RemoveStatusCondition(&status.Conditions, ConditionServed)
		*is = slices.DeleteFunc(*is, func(i corev1.LoadBalancerIngress) bool { return slices.Contains(addresses, i.IP) })
		return status, ""
	case lb == nil || lb.Status.ObservedGeneration == 0: // it keeps what it has
	case mode == ByStatus:
		*is, assigned = nil, ""
		for _, addr := range addresses {
			*is = append(*is, corev1.LoadBalancerIngress{IP: addr, IPMode: new(corev1.LoadBalancerIPModeVIP)})
		}
	default:
		assigned = strings.Join(addresses, ",")
	}
	var ready *metav1.Condition
	if lb != nil && lb.Status.ObservedGeneration == lb.Generation {
		ready = meta.FindStatusCondition(lb.Status.Conditions, ConditionReady)
	}
	if c := outcome(refused, silent, ready); c != nil {
		c.ObservedGeneration, c.LastTransitionTime = s.Generation, metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, *c)
	}
	return status, assigned
}

// outcome is what a tenant is told of what it asks for: refused says why it is not asked for, silent who has not been heard, and ready is the condition of what
// was asked for as it is, nil if nobody knows yet. It is nil if there is nothing to tell.
func outcome(refused error, silent string, ready *metav1.Condition) *metav1.Condition {
	c := &metav1.Condition{Type: ConditionServed, Status: metav1.ConditionFalse, Reason: ReasonRefused}
	switch {
	case refused != nil: // what it had before stays as it is
		c.Message = refused.Error()
		if r, ok := refused.(*pool.Refusal); ok {
			c.Reason = string(r.Reason)
		}
	case silent != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonSilent, silent
	case ready == nil:
		return nil
	default:
		c.Status, c.Reason, c.Message = ready.Status, ready.Reason, ready.Message
	}
	return c
}

// Report is what a manager has found of a tenant.
type Report struct {
	Conflict      string
	Nodes, Answer int  // nodes that are told of and within limits, and those of them that answer
	Probing       bool // it is not known yet which do
	Served        int  // TCPLoadBalancers that have VIPs and are served
	Routes        int  // HTTPLoadBalancers that are served
	Addresses     int  // different VIPs
	Refused       []string
	AgentLast     time.Time // when the agent was last heard; zero if never
	AgentSilent   bool
}

// mostRefusals is how many sentences the status of a Tenant has at most.
const mostRefusals = 10

// TenantStatus is what the manager reports of a Tenant.
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
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: t.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	switch {
	case r.AgentLast.IsZero():
		set(ConditionAgentHeard, false, "NeverHeard", "no agent has been heard: give it what `herald tenant kubeconfig` prints")
	case r.AgentSilent:
		set(ConditionAgentHeard, false, ReasonSilent, fmt.Sprintf("the agent was last heard at %s: what is served stays as it is", r.AgentLast.UTC().Format(time.RFC3339)))
	default:
		set(ConditionAgentHeard, true, ReasonHeard, "the agent is heard")
	}
	switch {
	case r.Probing:
		s.Nodes = t.Status.Nodes
	case r.Nodes == 0:
		set(ConditionNodes, false, ReasonNoNodes, "the agent tells of no node that the Tenant allows")
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
		set(ConditionReady, true, ReasonServed, "what the agent asks for is served")
	}
	return s
}
