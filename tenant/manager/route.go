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

// routePrefix comes before the namespace and name of an HTTPLoadBalancer in its key.
const routePrefix = "route/"

// listenToRoutes has work done about HTTPLoadBalancers, and about what is derived from them.
func (m *manager) listenToRoutes() {
	m.known.Routes.HandleChanges(m.addRoute)
	for _, informer := range m.known.Derived {
		informer.HandleChanges(func(o *unstructured.Unstructured) { m.addOwner(o, echo) })
	}
	m.known.Classes.HandleChanges(func(*unstructured.Unstructured) { m.addAll() })
}

// keepNames has who has a name keep it, before others ask for one.
func (m *manager) keepNames() {
	for lb := range m.known.Routes.All() {
		if len(lb.Status.Hostnames) > 0 {
			m.ownName(lb)
		}
	}
}

// addRoute has an HTTPLoadBalancer looked at, and those that are served at its name.
func (m *manager) addRoute(lb *v1alpha1.HTTPLoadBalancer) {
	m.queue.Add(routePrefix + kube.Key(lb))
	if lb.Spec.Kind == tenant.KindGateway {
		m.addRoutesOf(lb.Namespace)
	}
	m.addStatus(lb.Namespace)
}

// addRoutesOf has all looked at that a tenant is served by name, when what they depend on has been.
func (m *manager) addRoutesOf(namespace string) {
	for lb := range m.known.Routes.In(namespace) {
		m.queue.AddAfter(routePrefix+kube.Key(lb), gatherFalls)
	}
}

// ownName is the hostname that an Ingress or a Gateway has of its own; empty if it can have none.
func (m *manager) ownName(lb *v1alpha1.HTTPLoadBalancer) string {
	name, ok := tenant.OfNamespace(lb.Namespace)
	if !ok || m.domain == "" || lb.Spec.Kind != tenant.KindIngress && lb.Spec.Kind != tenant.KindGateway {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names.Claim(lb, tenant.DomainOf(name, m.domain))
}

// ownNames are the hostnames that it is served at without asking for any.
func (m *manager) ownNames(lb *v1alpha1.HTTPLoadBalancer) (out []string) {
	if own := m.ownName(lb); own != "" {
		return []string{own}
	}
	for _, of := range lb.Spec.Gateways {
		namespace, name, _ := strings.Cut(of, "/")
		gateway, ok := m.known.Routes.Get(lb.Namespace + "/" + tenant.RouteName(tenant.KindGateway, namespace, name))
		if ok && gateway.Spec.Kind == tenant.KindGateway {
			out = append(out, m.ownName(gateway))
		}
	}
	return out
}

// serveRoute derives from an HTTPLoadBalancer what it asks for, and tells of it.
func (m *manager) serveRoute(ctx context.Context, namespace, name string) error {
	lb, exists := m.known.Routes.Get(namespace + "/" + name)
	owner, ok := tenant.OfNamespace(namespace)
	if !ok {
		return nil // whoever made it there, it is no tenant's
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
	is, err := m.applyRoute(ctx, owner, namespace, name, want.Object)
	switch {
	case kube.Refuses(err):
		refused = errors.New("the load-balancing cluster does not serve it so: " + kube.Refusal(err))
	case apierrors.IsNotFound(err):
		refused = fmt.Errorf("the load-balancing cluster has no %s: ask its administrator", lb.Spec.Kind)
	case rejects(err):
		refused = fmt.Errorf("the load-balancing cluster cannot take it: %w", err)
	case err != nil:
		return err
	}
	if !exists {
		return err
	}
	if want.Hostnames == nil { // refused, it keeps its name
		want.Hostnames = lb.Status.Hostnames
	}
	status := tenant.RouteStatus(lb, refused, want, is, m.missing(owner, lb, want), time.Now())
	if equality.Semantic.DeepEqual(status, lb.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteRouteStatus(ctx, lb, status))
}

// rejects reports whether an error is a server's answer that asking again does not change.
func rejects(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge || code == http.StatusInternalServerError
}

// deriveRoute is what an HTTPLoadBalancer makes of itself, or why nothing.
func (m *manager) deriveRoute(owner string, lb *v1alpha1.HTTPLoadBalancer) (d tenant.DerivedRoute, refused error) {
	t, err := m.tenant(owner)
	switch {
	case err != nil:
		return d, err
	case m.domain == "":
		return d, errors.New("the manager has no --domain, so nothing has a name: ask the administrator of the load-balancing cluster")
	case m.conflict(t) != "":
		return d, errors.New(conflictElsewhere)
	}
	d, refused = tenant.DeriveRoute(t, lb, tenant.DomainsOf(t, m.domain), m.ownNames(lb))
	if refused != nil {
		d.Object = nil
	}
	return d, refused
}

// missing is what the backends of something that is served by name lack, empty if nothing.
func (m *manager) missing(owner string, lb *v1alpha1.HTTPLoadBalancer, d tenant.DerivedRoute) string {
	sentences := slices.Clone(d.Lacks)
	for _, asked := range d.Backends {
		backend, ok := m.known.LoadBalancers.Get(lb.Namespace + "/" + asked)
		if !ok {
			sentences = append(sentences, tenant.MissingBackend(asked))
			continue
		}
		if ready := meta.FindStatusCondition(backend.Status.Conditions, tenant.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
			sentences = append(sentences, fmt.Sprintf("the Service %s: %s", tenant.ServiceOf(asked), ready.Message))
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

// applyRoute makes what is derived from an HTTPLoadBalancer as it should be, and returns it as it is, nil if there is to be none.
func (m *manager) applyRoute(ctx context.Context, owner, namespace, name string, want *unstructured.Unstructured) (is *unstructured.Unstructured, err error) {
	for kind, derived := range m.known.Derived {
		known, exists := derived.Get(namespace + "/" + tenant.DerivedRouteName(name))
		switch {
		case want != nil && want.GetKind() == kind:
			if is = known; !exists || !tenant.SameRoute(is, want) {
				err = m.cluster.Apply(ctx, tenant.ManagerName, want)
				is = want
				if t, ok := m.known.Tenants.Get(owner); ok && exists && err != nil && !tenant.Permitted(known, tenant.DomainsOf(t, m.domain)) {
					err = errors.Join(err, m.cluster.Delete(ctx, known)) // what was served before stays, but for this
				}
			}
		case exists:
			err = errors.Join(err, m.cluster.Delete(ctx, known))
		}
	}
	return is, err
}
