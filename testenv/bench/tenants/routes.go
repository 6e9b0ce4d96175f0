package tenants

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/services"
)

// routes measures the resources of many Ingresses of many tenants, ten for each
// Service. No controller serves the derived objects: its speed is not Herald's.
func (s *stage) routes(ctx context.Context) error {
	z := size{tenants: 100, services: 10, routes: 100, nodes: 10}
	if s.Quick {
		z = size{tenants: 3, services: 2, routes: 4, nodes: 2}
	}
	all := z.tenants * z.routes
	if err := s.prepare(ctx); err != nil {
		return err
	}
	const class = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: any}, spec: {controller: example.net/none}}`
	if err := s.Balancing.API.Create(ctx, "/apis/networking.k8s.io/v1/ingressclasses", []byte(class)); err != nil {
		return err
	}
	began := time.Now()
	if err := s.createTenants(ctx, z); err != nil {
		return err
	}
	s.note("many routes: until the API server has what they ask for", all, "s", time.Since(began).Seconds())
	if err := s.awaitRoutes(ctx, all); err != nil {
		return err
	}
	s.note("many routes: until all are served", all, "s", time.Since(began).Seconds())
	writes, err := s.writes()
	if err != nil {
		return err
	}
	s.note("many routes: writes for each, and a tenth of its Service", all, "requests", float64(writes)/float64(all))
	if err := s.sizes(ctx, "many routes", all, z.tenants*z.nodes); err != nil {
		return err
	}
	for i := range s.Trials {
		if err := s.apart(ctx); err != nil {
			return err
		}
		if err := s.changes(ctx, i, all); err != nil {
			return err
		}
	}
	return nil
}

// changes measures one new path of a route, from the agent's object to the derived one
// for a controller.
func (s *stage) changes(ctx context.Context, trial, all int) error {
	before, err := s.writes()
	if err != nil {
		return err
	}
	began := time.Now()
	name, path := tenant.RouteName(tenant.KindIngress, "default", "r0"), fmt.Sprintf("/%d", trial)
	namespace := v1alpha1.TenantNamespace(tenantName(0, ""))
	err = s.Balancing.API.Patch(ctx, herald+"/namespaces/"+namespace+"/httploadbalancers/"+name, map[string]any{"spec": map[string]any{"object": map[string]any{"rules": rules(path, "s0")}}})
	if err != nil {
		return err
	}
	err = services.Eventually(ctx, func() error {
		var derived struct {
			Spec struct {
				Rules []struct {
					HTTP struct{ Paths []struct{ Path string } }
				}
			}
		}
		if err := s.Balancing.API.Get(ctx, "/apis/networking.k8s.io/v1/namespaces/"+namespace+"/ingresses/"+tenant.DerivedName(name), &derived); err != nil {
			return err
		}
		if len(derived.Spec.Rules) != 1 || derived.Spec.Rules[0].HTTP.Paths[0].Path != path {
			return fmt.Errorf("the derived Ingress is %+v", derived.Spec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.note("many routes: one changes, until the derived Ingress has", all, "ms", time.Since(began).Seconds()*1e3)
	if err := observe.Pause(ctx, 3*time.Second); err != nil { // its status follows
		return err
	}
	after, err := s.writes()
	if err != nil {
		return err
	}
	s.note("many routes: writes of one change", all, "requests", float64(after-before))
	return nil
}

func rules(path, service string) []any {
	return []any{map[string]any{"http": map[string]any{"paths": []any{map[string]any{
		"path": path, "pathType": "Prefix", "backend": map[string]any{"service": map[string]any{"name": service, "port": map[string]any{"number": 80}}},
	}}}}}
}

// route writes an agent's object for an Ingress.
func (s *stage) route(ctx context.Context, number int, name, service string) error {
	object := map[string]any{
		"apiVersion": "herald.dev/v1alpha1", "kind": "HTTPLoadBalancer", "metadata": map[string]any{"name": tenant.RouteName(tenant.KindIngress, "default", name)},
		"spec": map[string]any{
			"kind": tenant.KindIngress, "origin": map[string]any{"namespace": "default", "name": name}, "object": map[string]any{"rules": rules("/", service)},
		},
	}
	return services.Eventually(ctx, func() error {
		return s.Balancing.API.Create(ctx, herald+"/namespaces/"+tenantName(number, "tenant-")+"/httploadbalancers", object)
	})
}

// awaitRoutes waits until that many are served.
func (s *stage) awaitRoutes(ctx context.Context, all int) error {
	for {
		var list v1alpha1.HTTPLoadBalancerList
		if err := s.Balancing.API.Get(ctx, herald+"/httploadbalancers", &list); err != nil {
			return err
		}
		n := 0
		for _, lb := range list.Items {
			if meta.IsStatusConditionTrue(lb.Status.Conditions, tenant.ConditionReady) {
				n++
			}
		}
		if n == all {
			return nil
		}
		if err := observe.Pause(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d are served: %w", n, all, err)
		}
	}
}
