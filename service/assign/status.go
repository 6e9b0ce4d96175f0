package assign

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
)

// Reasons of conditions and events.
const (
	ReasonAssigned = "Assigned"
	// ReasonMoved is the reason of the event that a Service has another address.
	ReasonMoved = "AddressMoved"
)

// hasCondition reports whether Herald has written a Service's status.
func hasCondition(s *corev1.Service) bool { return conditionOf(s) != nil }

func conditionOf(s *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, service.ConditionAssigned)
}

func announcedOf(s *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, service.ConditionAnnounced)
}

// differs reports whether the addresses or the condition in a Service's status are wrong.
func (st *state) differs(key string, e *entry) bool {
	s := e.service
	switch {
	case s.DeletionTimestamp != nil:
		return false
	case !st.ours(s):
		return hasCondition(s)
	}
	present, want := s.Status.LoadBalancer.Ingress, ingress(st.addresses.Addresses(key))
	same := slices.EqualFunc(present, want, func(a, b corev1.LoadBalancerIngress) bool {
		return a.IP == b.IP && a.Hostname == "" && (a.IPMode == nil || *a.IPMode == *b.IPMode)
	})
	c := st.condition(key, e)
	return !same || !sameCondition(conditionOf(s), &c)
}

func ingress(addrs []netip.Addr) []corev1.LoadBalancerIngress {
	var list []corev1.LoadBalancerIngress
	for _, addr := range addrs {
		mode := corev1.LoadBalancerIPModeVIP
		list = append(list, corev1.LoadBalancerIngress{IP: addr.String(), IPMode: &mode})
	}
	return list
}

// condition returns the condition that reports whether the request of a Service is met.
func (st *state) condition(key string, e *entry) metav1.Condition {
	c := metav1.Condition{Type: service.ConditionAssigned, Status: metav1.ConditionFalse}
	addrs := st.addresses.Addresses(key)
	if e.refusal != nil {
		c.Reason, c.Message = string(e.refusal.Reason), e.refusal.Message
		return c
	}
	for _, addr := range addrs {
		if _, ok := st.addresses.PoolOf(addr); !ok {
			c.Reason = string(pool.AddressNotInPool)
			c.Message = fmt.Sprintf("%s is in no pool any more: add it to a pool, or ask for another address", addr)
			return c
		}
		if vip := st.reserved[addr]; vip.Key != "" {
			c.Reason = string(pool.AddressConflict)
			c.Message = fmt.Sprintf("%s is also that of %s: ask for another address, or change the VIP's", addr, vip.Key)
			return c
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonAssigned, "the Service has the addresses that it asks for"
	if len(addrs) < len(e.claim.Families) {
		c.Message = "the Service has an address of one family: no pool has one of the other family, which is optional"
	}
	return c
}

// statusWrite returns the write of the desired status of a Service.
func (st *state) statusWrite(key string, e *entry, now time.Time) write {
	s := e.service
	w := write{key: key, read: s}
	prev := conditionOf(s)
	w.status.Conditions = slices.Clone(s.Status.Conditions)
	if !st.ours(s) {
		meta.RemoveStatusCondition(&w.status.Conditions, service.ConditionAssigned)
		meta.RemoveStatusCondition(&w.status.Conditions, service.ConditionAnnounced)
		return w
	}
	addrs := st.addresses.Addresses(key)
	w.status.LoadBalancer.Ingress = ingress(addrs)
	c := st.condition(key, e)
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&w.status.Conditions, c)

	had := service.StatusAddresses(s)
	w.assigns = slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !slices.Contains(had, a) })
	if c.Status == metav1.ConditionFalse && (prev == nil || prev.Reason != c.Reason || prev.Message != c.Message) {
		w.refusal = c.Message
	}
	emit := func(kind, reason, message string) {
		w.events = append(w.events, kube.Event{About: s, Kind: "Service", APIVersion: "v1", Type: kind, Reason: reason, Message: message})
	}
	if len(had) > 0 && slices.ContainsFunc(had, func(a netip.Addr) bool { return !slices.Contains(addrs, a) }) {
		emit(corev1.EventTypeNormal, ReasonMoved, fmt.Sprintf("it has %s instead of %s", enumerate(addrs), enumerate(had)))
	}
	switch {
	case w.refusal != "":
		emit(corev1.EventTypeWarning, c.Reason, c.Message)
	case prev != nil && prev.Status == metav1.ConditionFalse && c.Status == metav1.ConditionTrue:
		emit(corev1.EventTypeNormal, c.Reason, "it has "+enumerate(addrs))
	}
	st.addAnnounced(&w, now, emit)
	return w
}

// enumerate lists addresses in a phrase.
func enumerate(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "no address"
	}
	words := make([]string, len(addrs))
	for n, addr := range addrs {
		words[n] = addr.String()
	}
	return strings.Join(words, " and ")
}
