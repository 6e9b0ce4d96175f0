package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// routePrefix begins the queue's key of an HTTPLoadBalancer, before its namespace and name.
const routePrefix = "route/"

// listenToRoutes enqueues work for changed HTTPLoadBalancers and their derived objects.
func (m *manager) listenToRoutes() {
	m.known.Routes.HandleChanges(m.addRoute)
	for _, informer := range m.known.Derived {
		informer.HandleChanges(func(o *unstructured.Unstructured) { m.addOwner(o, echo) })
	}
	m.known.Classes.HandleChanges(func(*unstructured.Unstructured) { m.addAll() })
}

// addRoute enqueues an HTTPLoadBalancer and, for a Gateway, the routes of its namespace.
func (m *manager) addRoute(lb *v1alpha1.HTTPLoadBalancer) {
	m.queue.Add(routePrefix + kube.Key(lb))
	if lb.Spec.Kind == tenant.KindGateway {
		m.addRoutesOf(lb.Namespace)
	}
	m.addStatus(lb.Namespace)
}

// addRoutesOf enqueues all HTTPLoadBalancers of a namespace, after the objects that they depend on.
func (m *manager) addRoutesOf(namespace string) {
	for lb := range m.known.Routes.In(namespace) {
		m.queue.AddAfter(routePrefix+kube.Key(lb), gatherFalls)
	}
}

// ownName returns the assigned hostname of an Ingress or a Gateway; empty if it cannot have one.
func (m *manager) ownName(lb *v1alpha1.HTTPLoadBalancer) string {
	name, ok := v1alpha1.TenantOf(lb.Namespace)
	if !ok || m.domain == "" || lb.Spec.Kind != tenant.KindIngress && lb.Spec.Kind != tenant.KindGateway {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names.Claim(lb, tenant.DomainOf(name, m.domain))
}

// ownNames returns the hostnames that reach a route without being requested: its own name, or the names of its Gateways.
func (m *manager) ownNames(lb *v1alpha1.HTTPLoadBalancer) (out []string) {
	if own := m.ownName(lb); own != "" {
		return []string{own}
	}
	for _, key := range lb.Spec.Gateways {
		namespace, name, _ := strings.Cut(key, "/")
		gateway, ok := m.known.Routes.Get(lb.Namespace + "/" + tenant.RouteName(tenant.KindGateway, namespace, name))
		if ok && gateway.Spec.Kind == tenant.KindGateway {
			out = append(out, m.ownName(gateway))
		}
	}
	return out
}

// serveRoute derives the route of an HTTPLoadBalancer and reports the result.
func (m *manager) serveRoute(ctx context.Context, namespace, name string) error {
	lb, exists := m.known.Routes.Get(namespace + "/" + name)
	owner, ok := v1alpha1.TenantOf(namespace)
	if !ok {
		return nil // no tenant's namespace
	}
	var want tenant.DerivedRoute
	var refused error
	if exists = exists && lb.DeletionTimestamp == nil; exists {
		want, refused = m.deriveRoute(owner, lb)
	} else {
		m.mu.Lock()
		m.names.Release(namespace + "/" + name)
		m.mu.Unlock()
	}
	current, err := m.applyRoute(ctx, owner, namespace, name, want.Object)
	switch {
	case kube.Refuses(err):
		refused = errors.New("the load-balancing cluster refuses the derived object: " + kube.Refusal(err))
	case apierrors.IsNotFound(err):
		refused = fmt.Errorf("the load-balancing cluster has no %s: ask its administrator", lb.Spec.Kind)
	case rejects(err):
		refused = fmt.Errorf("the load-balancing cluster does not accept it: %w", err)
	case err != nil:
		return err
	}
	if !exists {
		return err
	}
	if want.Hostnames == nil { // a refused one keeps its name
		want.Hostnames = lb.Status.Hostnames
	}
	status := tenant.RouteStatus(lb, refused, want, current, m.missing(owner, lb, want), time.Now())
	if equality.Semantic.DeepEqual(status, lb.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteStatus(ctx, lb, status))
}

// rejects reports whether an error is a permanent refusal by the API server.
func rejects(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge || code == http.StatusInternalServerError
}

// deriveRoute derives the route of an HTTPLoadBalancer, or returns the reason that there is none.
func (m *manager) deriveRoute(owner string, lb *v1alpha1.HTTPLoadBalancer) (d tenant.DerivedRoute, refused error) {
	t, err := m.tenant(owner)
	switch {
	case err != nil:
		return d, err
	case m.domain == "":
		return d, errors.New("the manager has no --domain, so it serves no routes: ask the administrator of the load-balancing cluster")
	case m.conflict(t) != "":
		return d, errors.New(conflictElsewhere)
	}
	d, refused = tenant.DeriveRoute(t, lb, tenant.DomainsOf(t, m.domain), m.ownNames(lb))
	if refused != nil {
		d.Object = nil
	}
	return d, refused
}

// missing describes missing backends, Secrets and classes of a route in one sentence; empty if there are none.
func (m *manager) missing(owner string, lb *v1alpha1.HTTPLoadBalancer, d tenant.DerivedRoute) string {
	sentences := slices.Clone(d.Missing)
	for _, asked := range d.Backends {
		backend, ok := m.known.LoadBalancers.Get(lb.Namespace + "/" + asked)
		if !ok {
			sentences = append(sentences, tenant.MissingBackend(asked))
			continue
		}
		if ready := meta.FindStatusCondition(backend.Status.Conditions, tenant.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
			sentences = append(sentences, fmt.Sprintf("the Service %s: %s", v1alpha1.ServiceOf(asked), ready.Message))
		}
	}
	if t, ok := m.known.Tenants.Get(owner); ok && lb.Spec.Kind == tenant.KindIngress && d.Object != nil {
		if _, there := m.known.Classes.Get(t.Spec.Ingress.ClassName); !there {
			sentences = append(sentences, fmt.Sprintf("the load-balancing cluster has no IngressClass %s: ask its administrator", t.Spec.Ingress.ClassName))
		}
	}
	slices.Sort(sentences)
	return strings.Join(sentences, "; ")
}

// applyRoute writes or deletes the object derived from an HTTPLoadBalancer. It returns the present object; nil if want is nil.
func (m *manager) applyRoute(ctx context.Context, owner, namespace, name string, want *unstructured.Unstructured) (current *unstructured.Unstructured, err error) {
	for kind, derived := range m.known.Derived {
		known, exists := derived.Get(namespace + "/" + tenant.DerivedName(name))
		switch {
		case want != nil && want.GetKind() == kind:
			if current = known; !exists || !tenant.SameRoute(current, want) {
				err = m.cluster.Apply(ctx, tenant.ManagerName, want)
				current = want
				if t, ok := m.known.Tenants.Get(owner); ok && exists && err != nil && !tenant.Permitted(known, tenant.DomainsOf(t, m.domain)) {
					err = errors.Join(err, m.cluster.Delete(ctx, known)) // a refused update keeps the previous object, unless its hostnames are forbidden now
				}
			}
		case exists:
			err = errors.Join(err, m.cluster.Delete(ctx, known))
		}
	}
	return current, err
}
