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
	"github.com/herald-vip/herald/service/tenant"
)

// work looks at one key. It logs what fails, but for what a Service tells.
func (a *agent) work(ctx context.Context, key string) error {
	err := a.attend(ctx, key)
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && (!kube.Refuses(err) || key == nodesKey) {
		a.log.Warn("cannot tell the load-balancing cluster; trying again", "about", key, "reason", err)
	}
	return err
}

func (a *agent) attend(ctx context.Context, key string) error {
	if key == nodesKey {
		return a.tellNodes(ctx)
	}
	s, exists := a.here.Services.Get(key)
	mode := tenant.NotServed
	if exists {
		mode = a.opts.Classes.ModeOf(s)
	}
	var want *v1alpha1.TCPLoadBalancerSpec
	var refused error
	if mode != tenant.NotServed {
		want, refused = tenant.Ask(s, mode, slices.Values(a.endpointsOf(key)))
	}
	lb := a.asked(key)
	if mode == tenant.NotServed { // the Service first, which knows its VIPs no other way
		if exists && answered(s) {
			if err := a.answer(ctx, s, mode, tenant.AnswerTo(s, nil, lb, "", time.Now())); err != nil {
				return err
			}
		}
		return a.ask(ctx, key, lb, nil)
	}
	var err error
	if want != nil { // else what was asked for before stays
		err = a.ask(ctx, key, lb, want)
	}
	if refused == nil && kube.Refuses(err) {
		refused = fmt.Errorf("the load-balancing cluster refuses it: %s", kube.Refusal(err))
	}
	answered := a.answer(ctx, s, mode, tenant.AnswerTo(s, refused, lb, a.silent(key, lb), time.Now()))
	return cmp.Or(err, answered)
}

// answered reports whether an agent has written of a Service.
func answered(s *corev1.Service) bool {
	return s.Annotations[service.AnnotationAssigned] != "" || meta.FindStatusCondition(s.Status.Conditions, tenant.ConditionServed) != nil
}

// asked is what is asked for a Service so far, as it is; nil if nothing is.
func (a *agent) asked(key string) *v1alpha1.TCPLoadBalancer {
	namespace, name, _ := strings.Cut(key, "/")
	lb, _ := a.there.LoadBalancers.Get(a.opts.Remote + "/" + tenant.LoadBalancerName(namespace, name))
	return lb
}

// ask makes what is asked for a Service what is wanted, nil for nothing.
func (a *agent) ask(ctx context.Context, key string, is *v1alpha1.TCPLoadBalancer, want *v1alpha1.TCPLoadBalancerSpec) error {
	namespace, name, _ := strings.Cut(key, "/")
	select {
	case <-a.there.Synced(): // before, what is not known may be there
	default:
		return nil
	}
	switch {
	case want == nil && is != nil:
		if err := a.remote.Delete(ctx, is); !apierrors.IsNotFound(err) {
			return err
		}
	case want != nil && (is == nil || !equality.Semantic.DeepEqual(&is.Spec, want)):
		return a.remote.Apply(ctx, tenant.AgentName, &v1alpha1.TCPLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.LoadBalancerName(namespace, name)}, Spec: *want,
		})
	}
	return nil
}

// silent says who should have answered and has not, empty if there is nobody.
func (a *agent) silent(key string, lb *v1alpha1.TCPLoadBalancer) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.heard) >= tenant.SilentAfter {
		return "the load-balancing cluster has not answered since " + a.heard.UTC().Format(time.RFC3339)
	}
	if lb == nil || lb.Status.ObservedGeneration == lb.Generation {
		delete(a.waiting, key)
		return ""
	}
	since, waits := a.waiting[key]
	if !waits {
		since = time.Now()
		a.waiting[key] = since
	}
	if left := tenant.SilentAfter - time.Since(since); left > 0 {
		a.queue.AddAfter(key, left)
		return ""
	}
	return fmt.Sprintf("the manager of the load-balancing cluster has not answered since %s", since.UTC().Format(time.RFC3339))
}

// answer writes back what became of a Service.
func (a *agent) answer(ctx context.Context, s *corev1.Service, mode tenant.Mode, answer tenant.Answer) error {
	status, assigned := answer.Status(s, mode)
	if s.Annotations[service.AnnotationAssigned] != assigned {
		return a.own.Annotate(ctx, s, service.AnnotationAssigned, assigned) // which brings the Service again
	}
	if equality.Semantic.DeepEqual(status, s.Status) {
		return nil
	}
	_, err := a.own.WriteServiceStatus(ctx, s, status)
	return err
}

// tellNodes tells of the nodes as they are.
func (a *agent) tellNodes(ctx context.Context) error {
	select {
	case <-a.there.Synced():
	default:
		return nil
	}
	told := &v1alpha1.TenantNodes{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.NodesName},
		Nodes:      tenant.NodesOf(a.here.Nodes.All(), a.opts.AddressType),
	}
	is, exists := a.there.Nodes.Get(kube.Key(told))
	if exists && equality.Semantic.DeepEqual(is.Nodes, told.Nodes) {
		return nil
	}
	return a.remote.Apply(ctx, tenant.AgentName, told)
}
