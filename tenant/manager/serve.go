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

// work looks at one key: a tenant's name, or that of a TCPLoadBalancer after its namespace and a slash, or of an HTTPLoadBalancer after a prefix, too. It logs what fails; what is refused
// its status tells.
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
		m.log.Warn("cannot serve a tenant as it asks; trying again", "about", key, "reason", err)
	}
	return err
}

// serve derives from a TCPLoadBalancer what it asks for, and tells of it.
func (m *manager) serve(ctx context.Context, namespace, name string) error {
	key := namespace + "/" + name
	lb, exists := m.known.LoadBalancers.Get(key)
	owner, ok := tenant.OfNamespace(namespace)
	if !ok {
		return nil // whoever made it there, it is no tenant's
	}
	var want tenant.Derived
	refused := ""
	if exists && lb.DeletionTimestamp == nil {
		want, refused = m.derive(owner, lb)
	}
	if want.Service == nil && refused == "" && exists && lb.DeletionTimestamp == nil {
		return nil // its nodes are not known yet: probes call again
	}
	is, err := m.apply(ctx, namespace, name, want)
	if kube.Refuses(err) {
		refused = "the load-balancing cluster does not serve it so: " + kube.Refusal(err)
	} else if err != nil {
		return err
	}
	if !exists || lb.DeletionTimestamp != nil {
		return nil
	}
	status, ok := tenant.LoadBalancerStatus(lb, refused, is, want.Unserved(lb), time.Now())
	if !ok || equality.Semantic.DeepEqual(status, lb.Status) {
		return err
	}
	return errors.Join(err, m.cluster.WriteLoadBalancerStatus(ctx, lb, status))
}

// tenant is the Tenant of a name, if it can be served.
func (m *manager) tenant(name string) (*v1alpha1.Tenant, error) {
	t, ok := m.known.Tenants.Get(name)
	if !ok {
		return nil, fmt.Errorf("there is no Tenant %s any more", name)
	}
	if tenant.Conflict(t, m.known.Tenants.All()) != "" { // with whom, is for the administrator
		return nil, errors.New(conflictElsewhere)
	}
	return t, nil
}

const conflictElsewhere = "its Tenant is in conflict with another one: ask the administrator of the load-balancing cluster"

// derive is what a TCPLoadBalancer makes of itself, or why nothing. Nothing without a reason is that nodes have not been probed yet.
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

// apply makes what is derived from a TCPLoadBalancer as it should be, slices first, and returns the Service as it is, nil if there is
// to be none. Where the first family of a Service would change, which cannot be, it goes and comes again.
func (m *manager) apply(ctx context.Context, namespace, name string, want tenant.Derived) (is *corev1.Service, err error) {
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
	is, exists := m.known.Services.Get(namespace + "/" + service)
	switch {
	case want.Service != nil && exists && len(is.Spec.IPFamilies) > 0 && is.Spec.IPFamilies[0] != want.Service.Spec.IPFamilies[0]:
		err = m.cluster.Delete(ctx, is)
	case want.Service != nil && (!exists || !tenant.SameService(is, want.Service)):
		err = m.cluster.Apply(ctx, tenant.ManagerName, want.Service)
	case want.Service == nil && exists:
		err, is = m.cluster.Delete(ctx, is), nil
	}
	for _, slice := range slices {
		if known, ok := m.known.Slices.Get(namespace + "/" + slice); ok && !wanted[slice] && err == nil {
			err = m.cluster.Delete(ctx, known)
		}
	}
	return is, err
}
