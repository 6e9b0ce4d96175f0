package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// work looks at one key. It logs what fails, but for what a Service tells.
func (a *agent) work(ctx context.Context, key string) error {
	err := a.attend(ctx, key)
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && (!refuses(err) || key == nodesKey) {
		a.log.Warn("cannot have a Service served; trying again", "about", key, "reason", err)
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
	lb, denied, err := a.ask(ctx, key, want)
	if !exists || mode == tenant.NotServed && !answered(s) {
		return err
	}
	if refused == nil {
		refused = denied
	}
	answer := tenant.AnswerTo(s, refused, lb, a.silent(key, lb), time.Now())
	if answerErr := a.answer(ctx, s, mode, answer); err == nil {
		err = answerErr
	}
	return err
}

// answered reports whether an agent has written of a Service.
func answered(s *corev1.Service) bool {
	return s.Annotations[service.AnnotationAssigned] != "" ||
		slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == service.ConditionAssigned })
}

// ask makes what is asked for a Service what is wanted, nil for nothing, and returns it as it is. It is denied if the
// load-balancing cluster takes no such request, which err repeats.
func (a *agent) ask(ctx context.Context, key string, want *v1alpha1.TCPLoadBalancerSpec) (lb *v1alpha1.TCPLoadBalancer, denied, err error) {
	namespace, name, _ := strings.Cut(key, "/")
	lb, exists := a.there.LoadBalancers.Get(a.opts.Remote + "/" + tenant.LoadBalancerName(namespace, name))
	select {
	case <-a.there.Synced(): // before, what is not known may be there
	default:
		return lb, nil, nil
	}
	switch {
	case want == nil && exists:
		if err = a.remote.Delete(ctx, lb); apierrors.IsNotFound(err) {
			err = nil
		}
		lb = nil
	case want != nil && (!exists || !equality.Semantic.DeepEqual(&lb.Spec, want)):
		err = a.remote.Apply(ctx, tenant.AgentName, &v1alpha1.TCPLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.LoadBalancerName(namespace, name)}, Spec: *want,
		})
		if refuses(err) {
			denied = fmt.Errorf("the load-balancing cluster refuses it: %s", reason(err))
		}
	}
	return lb, denied, err
}

// refuses reports whether an error is that the server takes no such request.
func refuses(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// reason is why a server has refused a request, without what comes before its own sentence or a policy's.
func reason(err error) string {
	text := err.Error()
	for _, before := range []string{" is forbidden: ", " is invalid: ", "denied request: "} {
		if _, after, ok := strings.Cut(text, before); ok {
			text = after
		}
	}
	return text
}

// silent says who should have answered and has not, empty if there is nobody.
func (a *agent) silent(key string, lb *v1alpha1.TCPLoadBalancer) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.heard) >= silentAfter {
		return fmt.Sprintf("the load-balancing cluster has not answered since %s: what it serves stays as it is", a.heard.UTC().Format(time.RFC3339))
	}
	if lb == nil || lb.Status.ObservedGeneration == lb.Generation {
		delete(a.asked, key)
		return ""
	}
	since, waits := a.asked[key]
	if !waits {
		a.asked[key] = time.Now()
		a.queue.AddAfter(key, silentAfter)
		return ""
	}
	if time.Since(since) < silentAfter {
		return ""
	}
	return fmt.Sprintf("the manager of the load-balancing cluster has not answered since %s", since.UTC().Format(time.RFC3339))
}

// answer writes back what became of a Service.
func (a *agent) answer(ctx context.Context, s *corev1.Service, mode tenant.Mode, answer tenant.Answer) error {
	status, assigned := answer.Status(s, mode)
	if s.Annotations[service.AnnotationAssigned] != assigned {
		if err := a.own.Annotate(ctx, s, service.AnnotationAssigned, assigned); err != nil {
			return err
		}
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
