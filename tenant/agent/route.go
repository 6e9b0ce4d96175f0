package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/tenant"
)

const (
	// gather delays work on a Gateway until other routes have changed too: its status counts them.
	gather = 100 * time.Millisecond
	// secretsAgain is the polling interval of an Ingress's Secrets: the agent may read Secrets by name, but not watch them.
	secretsAgain = time.Minute
	// A route waits for its new backends, at most for holds. settles is the time that proxies take to use a new backend:
	// kube-proxy acts once a second. A backend that no route needs stays for lingers.
	holds, settles, lingers = 5 * time.Second, 1500 * time.Millisecond, 15 * time.Second
	// lasting is how long an Ingress must be unserved before an event says so.
	lasting = 2 * time.Second
)

// routeKey returns the queue's key of a route, Gateway or GatewayClass.
func routeKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// listenToRoutes enqueues changed routes and Gateways, and the objects that depend on them.
func (a *agent) listenToRoutes() {
	for kind, informer := range a.here.Routes {
		generations := make(map[string]int64) // detects changes of the status alone
		changed := func(o *unstructured.Unstructured) {
			if a.queue.Add(routeKey(kind, o.GetNamespace(), o.GetName())); kind == tenant.KindGateway {
				a.addRoutes("")
			} else {
				a.addNear(o)
			}
		}
		informer.Handle(kube.Handlers[*unstructured.Unstructured]{
			Set: func(o *unstructured.Unstructured) {
				if generation := o.GetGeneration(); generation == 0 || generations[kube.Key(o)] != generation {
					generations[kube.Key(o)] = generation
					changed(o)
				} else {
					a.queue.Add(routeKey(kind, o.GetNamespace(), o.GetName()))
				}
			},
			Delete: func(o *unstructured.Unstructured) {
				delete(generations, kube.Key(o))
				changed(o)
			},
		})
	}
	a.here.Namespaces.HandleChanges(func(n *corev1.Namespace) { a.addRoutes(n.Name) })
	a.there.Routes.HandleChanges(func(lb *v1alpha1.HTTPLoadBalancer) {
		a.addAskedRoute(lb)
		a.addInternal(lb.Spec.Origin.Namespace)
	})
}

func (a *agent) addAskedRoute(lb *v1alpha1.HTTPLoadBalancer) {
	a.queue.Add(routeKey(lb.Spec.Kind, lb.Spec.Origin.Namespace, lb.Spec.Origin.Name))
}

// addNear enqueues the present and former backends of a route, and all Gateways.
func (a *agent) addNear(route *unstructured.Unstructured) {
	for _, name := range tenant.BackendsOf(route) {
		a.queue.Add(route.GetNamespace() + "/" + name)
	}
	a.addInternal(route.GetNamespace())
	for g := range a.here.Routes[tenant.KindGateway].All() {
		a.queue.AddAfter(routeKey(tenant.KindGateway, g.GetNamespace(), g.GetName()), gather)
	}
}

// addInternal enqueues the Services of a namespace that are requested as backends of routes.
func (a *agent) addInternal(namespace string) {
	for lb := range a.there.LoadBalancers.All() {
		if lb.Spec.Internal && lb.Spec.Origin.Namespace == namespace {
			a.addAsked(lb)
		}
	}
}

// addRoutes enqueues the routes of a namespace and their backends; an empty namespace means all.
func (a *agent) addRoutes(namespace string) {
	for kind, informer := range a.here.Routes {
		for o := range informer.All() {
			if namespace != "" && o.GetNamespace() != namespace {
				continue
			}
			a.queue.Add(routeKey(kind, o.GetNamespace(), o.GetName()))
			for _, name := range tenant.BackendsOf(o) {
				a.queue.Add(o.GetNamespace() + "/" + name)
			}
		}
	}
	for lb := range a.there.Routes.All() {
		a.addAskedRoute(lb)
	}
}

func (a *agent) gateways() tenant.Gateways {
	return tenant.Gateways{Get: a.here.Routes[tenant.KindGateway].Get, LabelsOf: func(namespace string) map[string]string {
		if n, ok := a.here.Namespaces.Get(namespace); ok {
			return n.Labels
		}
		return nil
	}}
}

// routes iterates over all routes of the Gateway API.
func (a *agent) routes() iter.Seq[*unstructured.Unstructured] {
	return func(yield func(*unstructured.Unstructured) bool) {
		for _, kind := range tenant.RouteKinds() {
			for o := range a.here.Routes[kind.Kind].All() {
				if kind.Kind != tenant.KindIngress && !yield(o) {
					return
				}
			}
		}
	}
}

// isBackend reports whether a served route sends requests to a Service. asked is the Service's TCPLoadBalancer, if any.
func (a *agent) isBackend(s *corev1.Service, asked *v1alpha1.TCPLoadBalancer) bool {
	for _, kind := range tenant.RouteKinds() {
		for o := range a.here.Routes[kind.Kind].In(s.Namespace) {
			if slices.Contains(tenant.BackendsOf(o), s.Name) && (tenant.Serves(o) || len(a.gateways().Parents(o)) > 0) {
				return true
			}
		}
	}
	for lb := range a.there.Routes.All() { // the load-balancing cluster may still have an earlier route
		unknown := asked != nil && asked.Spec.Internal && lb.Status.ObservedGeneration != lb.Generation // the derived route may stem from an earlier generation
		if lb.Spec.Origin.Namespace == s.Namespace && (unknown || slices.Contains(tenant.AskedBackends(lb), s.Name)) {
			return true
		}
	}
	return false
}

// keepCopy creates or updates the copy of a Service, or deletes it if s is nil. It returns the present copy; nil if there is none yet.
func (a *agent) keepCopy(ctx context.Context, key string, s *corev1.Service) (*corev1.Service, error) {
	namespace, name, _ := strings.Cut(key, "/")
	current, exists := a.here.Services.Get(namespace + "/" + tenant.CopyName(name))
	ours := exists && current.Labels[tenant.LabelCopy] == name
	switch {
	case s == nil && ours && a.knowsAsked():
		return nil, a.own.Delete(ctx, current)
	case s == nil:
		return nil, nil
	case exists && !ours:
		return nil, &pool.Refusal{Reason: pool.InvalidClaim, Message: fmt.Sprintf("the Service %s has the name that its copy needs: rename one of them", current.Name)}
	case !exists || !tenant.SameCopy(current, tenant.CopyOf(s)):
		return current, a.own.Apply(ctx, tenant.AgentName, tenant.CopyOf(s))
	}
	return current, nil
}

// attendRoute reconciles a route, Gateway or GatewayClass.
func (a *agent) attendRoute(ctx context.Context, kind, namespace, name string) error {
	key := namespace + "/" + name
	o, exists := a.here.Routes[kind].Get(strings.TrimPrefix(key, "/"))
	var parents, attached []tenant.Parent
	served := exists && tenant.Serves(o)
	switch {
	case kind == tenant.KindGatewayClass && served:
		return a.writeStatus(ctx, o, tenant.AnswerToClass(o, time.Now()))
	case kind == tenant.KindGatewayClass:
		return nil
	case exists:
		parents = a.gateways().Parents(o) // empty unless it is a route
		for _, p := range parents {
			if p.Reason == "" {
				attached = append(attached, p)
			}
		}
		served = served || len(attached) > 0
	}
	asked, _ := a.there.Routes.Get(a.opts.Remote + "/" + tenant.RouteName(kind, namespace, name))
	if !served {
		var err error
		for _, prefix := range []string{"unanswered ", "early ", "troubled "} {
			a.lasts(prefix+routeKey(kind, namespace, name), false)
		}
		a.events.Delete(routeKey(kind, namespace, name))
		if exists && a.knowsAsked() {
			err = a.answerRoute(ctx, o, parents, nil, asked, "")
		}
		return cmp.Or(err, a.askRoute(ctx, asked, nil))
	}
	secrets, err := a.secretsOf(ctx, o)
	if kube.Refuses(err) {
		return cmp.Or(a.answerRoute(ctx, o, parents, fmt.Errorf("the agent may not read the Secrets of its tls section: %s", kube.Refusal(err)), asked, ""), err)
	} else if err != nil {
		return err
	}
	spec, refused := tenant.AskRoute(o, attached, secrets)
	if refused == nil {
		lb := &v1alpha1.HTTPLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.RouteName(kind, namespace, name)}, Spec: *spec}
		same := asked != nil && equality.Semantic.DeepEqual(asked.Spec, lb.Spec)
		early := !same && !a.backendsKnown(o, asked != nil)
		if held := a.lasts("early "+routeKey(kind, namespace, name), early); early && held < holds {
			a.queue.AddAfter(routeKey(kind, namespace, name), gather)
			return nil
		}
		if err = a.askRoute(ctx, asked, lb); kube.Refuses(err) {
			refused = fmt.Errorf("the load-balancing cluster refuses it: %s", kube.Refusal(err))
		} else if err == nil {
			err = a.bring(ctx, lb, secrets)
		}
	}
	timeout := a.timeout(routeKey(kind, namespace, name), asked == nil || asked.Status.ObservedGeneration == asked.Generation)
	return cmp.Or(err, a.answerRoute(ctx, o, parents, refused, asked, timeout))
}

// backendsKnown reports whether the load-balancing cluster has all existing backends of a route. With settled it must have
// had them for the time that proxies need.
func (a *agent) backendsKnown(route *unstructured.Unstructured, settled bool) bool {
	for _, name := range tenant.BackendsOf(route) {
		key := route.GetNamespace() + "/" + name
		_, exists := a.here.Services.Get(key)
		if known := a.known(key, a.asked(key)); exists && (known == 0 || settled && known < settles) {
			return false
		}
	}
	return true
}

// known returns how long the manager has answered for a Service; 0 if it has not.
func (a *agent) known(key string, lb *v1alpha1.TCPLoadBalancer) time.Duration {
	answered := lb != nil && lb.Status.ObservedGeneration > 0
	d := a.lasts("known "+key, answered)
	if answered {
		d++ // positive from the first call on
	}
	return d
}

// askRoute creates, updates or (want is nil) deletes an HTTPLoadBalancer, and sets the UID of want.
func (a *agent) askRoute(ctx context.Context, current, want *v1alpha1.HTTPLoadBalancer) error {
	switch {
	case !a.knowsAsked():
	case want == nil && current != nil:
		return a.remote.Delete(ctx, current)
	case want != nil && current != nil && equality.Semantic.DeepEqual(current.Spec, want.Spec):
		want.UID = current.UID
	case want != nil:
		return a.remote.Apply(ctx, tenant.AgentName, want)
	}
	return nil
}

// secretsOf returns the existing Secrets of type TLS that an Ingress refers to.
func (a *agent) secretsOf(ctx context.Context, o *unstructured.Unstructured) (out []*corev1.Secret, err error) {
	if o.GetKind() != tenant.KindIngress {
		return nil, nil
	}
	for _, name := range tenant.SecretsOf(o) {
		a.queue.AddAfter(routeKey(o.GetKind(), o.GetNamespace(), o.GetName()), secretsAgain)
		s, err := a.own.Secret(ctx, o.GetNamespace(), name)
		if err != nil {
			return nil, err
		}
		if s != nil && s.Type == corev1.SecretTypeTLS {
			out = append(out, s)
		}
	}
	return out, nil
}

// bring copies Secrets to the load-balancing cluster. The HTTPLoadBalancer owns the copies.
func (a *agent) bring(ctx context.Context, lb *v1alpha1.HTTPLoadBalancer, secrets []*corev1.Secret) error {
	for _, s := range secrets {
		name, version := tenant.SecretName(lb.Name, s.Name), string(lb.UID)+"/"+s.ResourceVersion
		if copied, _ := a.brought.Load(name); lb.UID == "" || copied == version {
			continue
		}
		err := a.remote.Apply(ctx, tenant.AgentName, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion().String(), Kind: "HTTPLoadBalancer", Name: lb.Name, UID: lb.UID,
			}}},
			Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: s.Data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: s.Data[corev1.TLSPrivateKeyKey]},
		})
		if err != nil {
			return err
		}
		a.brought.Store(name, version)
	}
	return nil
}

// answerRoute writes the result into an object's status. An Ingress has no conditions, so an event reports its faults.
func (a *agent) answerRoute(ctx context.Context, o *unstructured.Unstructured, parents []tenant.Parent, refused error, lb *v1alpha1.HTTPLoadBalancer, timeout string) error {
	switch o.GetKind() {
	case tenant.KindIngress:
		err := a.writeStatus(ctx, o, tenant.AnswerToIngress(o, lb))
		return errors.Join(err, a.tellIngress(ctx, o, refused, lb, timeout))
	case tenant.KindGateway:
		if !tenant.Serves(o) || lb == nil && !a.knowsAsked() {
			return nil
		}
		attached := a.gateways().Attached(kube.Key(o), a.routes())
		return a.writeStatus(ctx, o, tenant.AnswerToGateway(o, attached, refused, lb, timeout, time.Now()))
	}
	return a.writeStatus(ctx, o, tenant.AnswerToRoute(o, parents, refused, lb, timeout, time.Now()))
}

func (a *agent) writeStatus(ctx context.Context, o *unstructured.Unstructured, status map[string]any) error {
	if tenant.SameStatus(o, status) {
		return nil
	}
	return a.own.WriteStatus(ctx, o, status)
}

// tellIngress writes one event with the reason that an Ingress is not served, once that has lasted.
func (a *agent) tellIngress(ctx context.Context, o *unstructured.Unstructured, refused error, lb *v1alpha1.HTTPLoadBalancer, timeout string) error {
	reason, message := tenant.IngressTrouble(refused, lb, timeout)
	key := routeKey(o.GetKind(), o.GetNamespace(), o.GetName())
	if left := lasting - a.lasts("troubled "+key, message != ""); message != "" && left > 0 {
		a.queue.AddAfter(key, left)
		return nil
	}
	if prev, _ := a.events.Swap(key, message); prev == message || message == "" {
		return nil
	}
	return a.own.WriteEvent(ctx, kube.Event{
		About: o, Kind: o.GetKind(), APIVersion: o.GetAPIVersion(), Type: corev1.EventTypeWarning, Reason: reason, Message: message, Reporter: a.opts.Identity,
	})
}
