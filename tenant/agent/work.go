package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/tenant"
)

// work reconciles one key. It logs failures, except refusals, which a Service's condition reports.
func (a *agent) work(ctx context.Context, key string) error {
	err := a.attend(ctx, key)
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && (!kube.Refuses(err) || key == nodesKey) {
		a.log.Warn("cannot update the load-balancing cluster; retrying", "about", key, "reason", err)
	}
	return err
}

func (a *agent) attend(ctx context.Context, key string) error {
	if key == nodesKey {
		return a.tellNodes(ctx)
	}
	if parts := strings.Split(key, "/"); len(parts) == 3 {
		return a.attendRoute(ctx, parts[0], parts[1], parts[2])
	}
	s, exists := a.here.Services.Get(key)
	mode := tenant.NotServed
	if exists {
		mode = tenant.ModeOf(s, a.opts.Scope)
	}
	lb := a.asked(key)
	a.known(key, lb)
	if mode == tenant.NotServed && exists && s.DeletionTimestamp == nil && a.isBackend(s, lb) {
		mode = tenant.ByRoute
	}
	unneeded := mode == tenant.NotServed && exists && lb != nil && lb.Spec.Internal // a former backend, which the load-balancing cluster may still use
	if left := lingers - a.lasts("unneeded "+key, unneeded); unneeded && left > 0 {
		a.queue.AddAfter(key, left)
		return nil
	}
	var needsCopy *corev1.Service
	if mode == tenant.ByRoute && tenant.NeedsCopy(s) {
		needsCopy = s
	}
	copied, refused := a.keepCopy(ctx, key, needsCopy)
	if _, ok := refused.(*pool.Refusal); kube.Refuses(refused) {
		refused = fmt.Errorf("the API server refuses its copy: %s", kube.Refusal(refused))
	} else if refused != nil && !ok {
		return refused
	}
	var want *v1alpha1.TCPLoadBalancerSpec
	if mode != tenant.NotServed && refused == nil {
		want, refused = tenant.Ask(s, mode, copied, slices.Values(a.endpointsOf(key)))
	}
	if mode == tenant.NotServed { // clear the Service first: only the TCPLoadBalancer knows which VIPs to remove
		if !a.knowsAsked() {
			return nil
		}
		if exists && answered(s) {
			if err := a.answer(ctx, s, mode, nil, lb, ""); err != nil {
				return err
			}
		}
		return a.ask(ctx, key, lb, nil)
	}
	var err error
	if want != nil { // else the previous request stays
		err = a.ask(ctx, key, lb, want)
	}
	if refused == nil && kube.Refuses(err) {
		refused = fmt.Errorf("the load-balancing cluster refuses it: %s", kube.Refusal(err))
	}
	return cmp.Or(err, a.answer(ctx, s, mode, refused, lb, a.timeout(key, lb == nil || lb.Status.ObservedGeneration == lb.Generation)))
}

// answered reports whether an agent has written to a Service.
func answered(s *corev1.Service) bool {
	return s.Annotations[service.AnnotationAssigned] != "" || meta.FindStatusCondition(s.Status.Conditions, tenant.ConditionServed) != nil
}

// asked returns the present TCPLoadBalancer of a Service; nil if there is none.
func (a *agent) asked(key string) *v1alpha1.TCPLoadBalancer {
	lb, _ := a.there.LoadBalancers.Get(a.opts.Remote + "/" + v1alpha1.LoadBalancerName(key))
	return lb
}

// knowsAsked reports whether the objects of the load-balancing cluster are known completely.
func (a *agent) knowsAsked() bool {
	select {
	case <-a.there.Synced():
		return true
	default:
		return false
	}
}

// ask creates, updates or (want is nil) deletes the TCPLoadBalancer of a Service.
func (a *agent) ask(ctx context.Context, key string, current *v1alpha1.TCPLoadBalancer, want *v1alpha1.TCPLoadBalancerSpec) error {
	switch {
	case !a.knowsAsked():
	case want == nil && current != nil:
		return a.remote.Delete(ctx, current)
	case want != nil && (current == nil || !equality.Semantic.DeepEqual(&current.Spec, want)):
		return a.remote.Apply(ctx, tenant.AgentName, &v1alpha1.TCPLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: v1alpha1.LoadBalancerName(key)}, Spec: *want,
		})
	}
	return nil
}

// lasts returns how long the condition of a key has held, counted from the first call that saw it; 0 if it does not hold.
func (a *agent) lasts(key string, holds bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !holds {
		delete(a.began, key)
		return 0
	}
	if a.began[key].IsZero() {
		a.began[key] = time.Now()
	}
	return time.Since(a.began[key])
}

// timeout returns a sentence about the party that does not answer; empty if all do. answered reports whether the manager has.
func (a *agent) timeout(key string, answered bool) string {
	a.mu.Lock()
	lastAnswer := a.lastAnswer
	a.mu.Unlock()
	waits := a.lasts("unanswered "+key, !answered)
	switch left := tenant.TimeoutAfter - waits; {
	case time.Since(lastAnswer) >= tenant.TimeoutAfter:
		return "the load-balancing cluster has not answered since " + lastAnswer.UTC().Format(time.RFC3339)
	case answered:
		return ""
	case left > 0:
		a.queue.AddAfter(key, left)
		return ""
	}
	return "the manager of the load-balancing cluster has not answered since " + time.Now().Add(-waits).UTC().Format(time.RFC3339)
}

// answer writes the result into a Service's annotation, then its status.
func (a *agent) answer(ctx context.Context, s *corev1.Service, mode tenant.Mode, refused error, lb *v1alpha1.TCPLoadBalancer, timeout string) error {
	status, assigned := tenant.AnswerTo(s, mode, refused, lb, timeout, time.Now())
	if s.Annotations[service.AnnotationAssigned] != assigned {
		return a.own.Annotate(ctx, s, service.AnnotationAssigned, assigned) // the change of the Service enqueues it again
	}
	if equality.Semantic.DeepEqual(status, s.Status) {
		return nil
	}
	_, err := a.own.WriteServiceStatus(ctx, s, status)
	return err
}

// tellNodes reports the nodes to the load-balancing cluster.
func (a *agent) tellNodes(ctx context.Context) error {
	if !a.knowsAsked() {
		return nil
	}
	nodes := slices.Collect(a.here.Nodes.All())
	want := &v1alpha1.TenantNodes{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.NodesName},
		Nodes:      tenant.NodesOf(slices.Values(nodes), a.opts.AddressType),
	}
	current, exists := a.there.Nodes.Get(kube.Key(want))
	if exists && equality.Semantic.DeepEqual(current.Nodes, want.Nodes) {
		return nil
	}
	if exists && len(want.Nodes) == 0 && len(nodes) > 0 { // likely a mistake, and an empty list would end all connections
		a.log.Warn("no node has an address of this type; the nodes reported before stay: compare --address-type with the nodes", "type", a.opts.AddressType)
		return nil
	}
	return a.remote.Apply(ctx, tenant.AgentName, want)
}
