package tenant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

var now = time.Unix(1e9, 0)

// brief returns a short form of a condition.
func brief(c metav1.Condition) string {
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func TestLoadBalancerStatus(t *testing.T) {
	derived := func(status metav1.ConditionStatus, reason string, addrs ...string) *corev1.Service {
		s := &corev1.Service{}
		s.Status.Conditions = []metav1.Condition{{Type: service.ConditionAssigned, Status: status, Reason: reason, Message: "says the writer"}}
		for _, a := range addrs {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		return s
	}
	for name, tt := range map[string]struct {
		refused  string
		current  *corev1.Service
		unserved string
		want     string // empty: nothing to report
	}{
		"not derived yet":       {"", nil, "", ""},
		"no address yet":        {"", &corev1.Service{}, "", ""},
		"served":                {"", derived(metav1.ConditionTrue, "Assigned", "10.1.0.5"), "", "[10.1.0.5] True Served it has a VIP and endpoints"},
		"no endpoints":          {"", derived(metav1.ConditionTrue, "Assigned", "10.1.0.5"), "IPv6", "[10.1.0.5] False NoNodes no node has an endpoint for IPv6"},
		"the pool is exhausted": {"", derived(metav1.ConditionFalse, "PoolExhausted"), "", "[] False PoolExhausted says the writer"},
		"another tenant's":      {"", derived(metav1.ConditionFalse, "AddressConflict"), "", "[] False AddressConflict an address that it asks for belongs to another Service: ask for another address, or for none"},
		"refused":               {"no such port", nil, "", "[] False Refused no such port"},
		"a change is refused":   {"no such port", derived(metav1.ConditionTrue, "Assigned", "10.1.0.5"), "", "[10.1.0.5] False Refused no such port"},
	} {
		s, ok := LoadBalancerStatus(asked(), tt.refused, tt.current, tt.unserved, now)
		got := ""
		if ok {
			got = fmt.Sprintf("%v %s", s.Addresses, brief(s.Conditions[0]))
		}
		if got != tt.want || ok && s.ObservedGeneration != 1 {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestAnswer checks the status of a tenant's Service, and that the entries of other controllers stay.
func TestAnswer(t *testing.T) {
	lb := func(observed int64, status metav1.ConditionStatus, addrs ...string) *v1alpha1.TCPLoadBalancer {
		return asked(func(lb *v1alpha1.TCPLoadBalancer) {
			lb.Status = v1alpha1.TCPLoadBalancerStatus{ObservedGeneration: observed, Addresses: addrs}
			lb.Status.Conditions = []metav1.Condition{{Type: ConditionReady, Status: status, Reason: "R", Message: "it says"}}
		})
	}
	before := "True Served before"
	for name, tt := range map[string]struct {
		mode     Mode
		refused  error
		lb       *v1alpha1.TCPLoadBalancer
		timeout  string
		status   string // the condition
		ingress  string
		assigned string
	}{
		"nothing asked yet":        {ByStatus, nil, nil, "", before, "192.0.2.1", "10.1.0.9"},
		"not answered yet":         {ByStatus, nil, lb(0, metav1.ConditionTrue, "10.1.0.5"), "", before, "192.0.2.1", "10.1.0.9"},
		"served":                   {ByStatus, nil, lb(1, metav1.ConditionTrue, "10.1.0.5", "fd00:1::5"), "", "True R it says", "10.1.0.5 fd00:1::5", ""},
		"served in an annotation":  {ByNodePorts, nil, lb(1, metav1.ConditionTrue, "10.1.0.5", "fd00:1::5"), "", "True R it says", "192.0.2.1", "10.1.0.5,fd00:1::5"},
		"its own balancer":         {ByEndpoints, nil, lb(1, metav1.ConditionTrue, "10.1.0.5"), "", "True R it says", "192.0.2.1", "10.1.0.5"},
		"not served there":         {ByStatus, nil, lb(1, metav1.ConditionFalse), "", "False R it says", "", ""},
		"mistyped while it served": {ByStatus, &pool.Refusal{Reason: pool.InvalidClaim, Message: "no such annotation"}, lb(1, metav1.ConditionTrue, "10.1.0.5"), "", "False InvalidClaim no such annotation", "10.1.0.5", ""},
		"refused there":            {ByStatus, errors.New("exceeded quota"), nil, "", "False Refused exceeded quota", "192.0.2.1", "10.1.0.9"},
		"silence":                  {ByStatus, nil, lb(1, metav1.ConditionTrue, "10.1.0.5"), "not since 10:00", "Unknown Silent not since 10:00", "10.1.0.5", ""},
		"not served any more":      {NotServed, nil, lb(1, metav1.ConditionTrue, "192.0.2.1"), "", "", "", ""},
		"served by others now":     {NotServed, nil, lb(1, metav1.ConditionTrue, "10.1.0.5"), "", "", "192.0.2.1", ""},
	} {
		s := web(annotated(service.AnnotationAssigned, "10.1.0.9"), func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			s.Status.Conditions = []metav1.Condition{
				{Type: service.ConditionAssigned, Status: metav1.ConditionTrue, Reason: "Assigned", Message: "by another controller"},
				{Type: ConditionServed, Status: metav1.ConditionTrue, Reason: "Served", Message: "before"},
			}
		})
		status, assigned := AnswerTo(s, tt.mode, tt.refused, tt.lb, tt.timeout, now)
		var conditions, ingress []string
		for _, c := range status.Conditions[1:] {
			conditions = append(conditions, brief(c))
		}
		for _, i := range status.LoadBalancer.Ingress {
			ingress = append(ingress, i.IP)
		}
		if status.Conditions[0].Message != "by another controller" {
			t.Errorf("%s: the condition of another controller is %+v", name, status.Conditions[0])
		}
		if got := strings.Join(conditions, "; "); got != tt.status || strings.Join(ingress, " ") != tt.ingress || assigned != tt.assigned {
			t.Errorf("%s: %q, %q, %q, want %q, %q, %q", name, got, ingress, assigned, tt.status, tt.ingress, tt.assigned)
		}
	}
}

func TestTenantStatus(t *testing.T) {
	many := slices.Repeat([]string{"a sentence"}, 12)
	for name, tt := range map[string]struct {
		Report
		want string
	}{
		"all is well":   {Report{Nodes: 3, Answer: 2, Served: 7, Addresses: 5, AgentLast: now}, "2/3 7/100 5: True Heard; True Answer; True Served"},
		"no agent yet":  {Report{}, "0/0 0/100 0: False NeverHeard; False NoNodes; True Served"},
		"all timed out": {Report{Nodes: 3, Served: 7, Addresses: 7, AgentLast: now, AgentTimedOut: true}, "0/3 7/100 7: False Silent; False NodesSilent; True Served"},
		"probing":       {Report{Nodes: 3, Probing: true, AgentLast: now}, " 0/100 0: True Heard; True Served"},
		"conflict":      {Report{Nodes: 1, Answer: 1, Conflict: "overlaps", Refused: []string{"x"}, AgentLast: now}, "1/1 0/100 0: True Heard; True Answer; False Conflict"},
		"refused":       {Report{Nodes: 1, Answer: 1, Refused: many, AgentLast: now}, "1/1 0/100 0: True Heard; True Answer; False Refused"},
	} {
		s := TenantStatus(acme(), tt.Report, now)
		var words []string
		for _, c := range s.Conditions {
			words = append(words, fmt.Sprintf("%s %s", c.Status, c.Reason))
		}
		if got := fmt.Sprintf("%s %s %d: %s", s.Nodes, s.Services, s.Addresses, strings.Join(words, "; ")); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if len(tt.Refused) == len(many) && (len(s.Refused) != 11 || s.Refused[10] != "and 2 more") {
			t.Errorf("many refusals are shortened to %q", s.Refused)
		}
	}
}
