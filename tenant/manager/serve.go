package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// work reconciles one key: a tenant's name, namespace/name of a TCPLoadBalancer, or [routePrefix] plus namespace/name of an
// HTTPLoadBalancer. It logs failures; refusals are reported in the status.
func (m *manager) work(ctx context.Context, key string) error {
	rest, isRoute := strings.CutPrefix(key, routePrefix)
	namespace, name, isLoadBalancer := strings.Cut(rest, "/")
	var err error
	switch {
	case isRoute:
		err = m.serveRoute(ctx, namespace, name)
	case isLoadBalancer:
		err = m.serve(ctx, namespace, name)
	default:
		err = m.keepTenant(ctx, key)
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !(isLoadBalancer && kube.Refuses(err)) {
		m.log.Warn("cannot serve a request of a tenant; retrying", "about", key, "reason", err)
	}
	return err
}

// serve derives the Service of a TCPLoadBalancer and reports the result.
func (m *manager) serve(ctx context.Context, namespace, name string) error {
	key := namespace + "/" + name
	lb, exists := m.known.LoadBalancers.Get(key)
	owner, ok := v1alpha1.TenantOf(namespace)
	if !ok {
		return nil // no tenant's namespace
	}
	var want tenant.Derived
	refused := ""
	if exists && lb.DeletionTimestamp == nil {
		want, refused = m.derive(owner, lb)
	}
	if want.Service == nil && refused == "" && exists && lb.DeletionTimestamp == nil {
		return nil // the nodes have not been probed yet; the prober enqueues it again
	}
	current, err := m.apply(ctx, namespace, name, want)
	if kube.Refuses(err) {
		refused = "the load-balancing cluster refuses the derived object: " + kube.Refusal(err)
	} else if err != nil {
		return err
	}
	if !exists || lb.DeletionTimestamp != nil {
		return nil
	}
	status, ok := tenant.LoadBalancerStatus(lb, refused, current, want.Unserved(lb), time.Now())
	if !ok || equality.Semantic.DeepEqual(status, lb.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteStatus(ctx, lb, status))
}

// tenant returns the Tenant of a name, or an error if it cannot be served.
func (m *manager) tenant(name string) (*v1alpha1.Tenant, error) {
	t, ok := m.known.Tenants.Get(name)
	if !ok {
		return nil, fmt.Errorf("the Tenant %s does not exist any more", name)
	}
	if tenant.Conflict(t, m.known.Tenants.All()) != "" { // do not reveal the other tenant
		return nil, errors.New(conflictElsewhere)
	}
	return t, nil
}

const conflictElsewhere = "its Tenant is in conflict with another one: ask the administrator of the load-balancing cluster"

// derive derives the objects of a TCPLoadBalancer, or returns the reason that there are none. Neither objects nor a reason
// means that the nodes have not been probed yet.
func (m *manager) derive(owner string, lb *v1alpha1.TCPLoadBalancer) (tenant.Derived, string) {
	t, err := m.tenant(owner)
	if err == nil {
		err = m.limits(t).Check(lb)
	}
	if err != nil {
		return tenant.Derived{}, err.Error()
	}
	nodes, _ := m.nodes(t)
	answers, known := m.prober.answers(t, nodes)
	if !known {
		return tenant.Derived{}, ""
	}
	return tenant.Derive(t.Name, lb, tenant.Backends{Nodes: nodes, Answers: answers, Limit: int(t.Spec.Nodes.MaxPerService)}), ""
}

// apply writes or deletes the objects derived from a TCPLoadBalancer, slices first. It returns the present Service; nil if
// there should be none. The first family of a Service is immutable: if it changes, apply deletes the Service, and a later
// call creates it again.
func (m *manager) apply(ctx context.Context, namespace, name string, want tenant.Derived) (current *corev1.Service, err error) {
	service, slices := tenant.DerivedNames(name)
	wanted := make(map[string]bool)
	for _, s := range want.Slices {
		wanted[s.Name] = true
		if known, ok := m.known.Slices.Get(kube.Key(s)); !ok || !tenant.SameSlice(known, s) {
			if err := m.cluster.Apply(ctx, tenant.ManagerName, s); err != nil {
				return nil, err
			}
		}
	}
	current, exists := m.known.Services.Get(namespace + "/" + service)
	switch {
	case want.Service != nil && exists && len(current.Spec.IPFamilies) > 0 && current.Spec.IPFamilies[0] != want.Service.Spec.IPFamilies[0]:
		err = m.cluster.Delete(ctx, current)
	case want.Service != nil && (!exists || !tenant.SameService(current, want.Service)):
		err = m.cluster.Apply(ctx, tenant.ManagerName, want.Service)
	case want.Service == nil && exists:
		err, current = m.cluster.Delete(ctx, current), nil
	}
	for _, slice := range slices {
		if known, ok := m.known.Slices.Get(namespace + "/" + slice); ok && !wanted[slice] && err == nil {
			err = m.cluster.Delete(ctx, known)
		}
	}
	return current, err
}
