package tenants

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/services"
	"github.com/herald-vip/herald/testenv/step"
)

// routes measures the resources of many Ingresses of many tenants, ten for each
// Service. No controller serves the derived objects: its speed is not Herald's.
func (s *stage) routes(ctx context.Context) {
	z := size{tenants: 100, services: 10, routes: 100, nodes: 10}
	if s.Quick {
		z = size{tenants: 3, services: 2, routes: 4, nodes: 2}
	}
	all := z.tenants * z.routes
	s.prepare(ctx)
	const class = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: any}, spec: {controller: example.net/none}}`
	step.Do(s.Balancing.API.Create(ctx, "/apis/networking.k8s.io/v1/ingressclasses", []byte(class)))
	began := time.Now()
	s.createTenants(ctx, z)
	s.noteAmong(all, "many routes: until the API server has what they ask for", "s", time.Since(began).Seconds())
	s.awaitRoutes(ctx, all)
	s.noteAmong(all, "many routes: until all are served", "s", time.Since(began).Seconds())
	s.noteAmong(all, "many routes: writes for each, and a tenth of its Service", "requests", float64(s.writes())/float64(all))
	s.sizes(ctx, "many routes", all, z.tenants*z.nodes)
	for i := range s.Trials {
		s.apart(ctx)
		s.changes(ctx, i, all)
	}
}

// changes measures one new path of a route, from the agent's object to the derived one
// for a controller.
func (s *stage) changes(ctx context.Context, trial, all int) {
	before, began := s.writes(), time.Now()
	name, path := tenant.RouteName(tenant.KindIngress, "default", "r0"), fmt.Sprintf("/%d", trial)
	change := map[string]any{"spec": map[string]any{"object": map[string]any{"rules": rules(path, "s0")}}}
	step.Do(s.Balancing.API.Patch(ctx, inTenant(0, "httploadbalancers/"+name), change))
	derivedPath := "/apis/networking.k8s.io/v1/namespaces/" + namespace(0) + "/ingresses/" + tenant.DerivedName(name)
	step.Do(services.Eventually(ctx, func() error {
		var derived struct {
			Spec struct {
				Rules []struct {
					HTTP struct{ Paths []struct{ Path string } }
				}
			}
		}
		if err := s.Balancing.API.Get(ctx, derivedPath, &derived); err != nil {
			return err
		}
		if len(derived.Spec.Rules) != 1 || derived.Spec.Rules[0].HTTP.Paths[0].Path != path {
			return fmt.Errorf("the derived Ingress is %+v", derived.Spec)
		}
		return nil
	}))
	s.noteAmong(all, "many routes: one changes, until the derived Ingress has", "ms", time.Since(began).Seconds()*1e3)
	step.Pause(ctx, 3*time.Second) // its status follows
	s.noteAmong(all, "many routes: writes of one change", "requests", float64(s.writes()-before))
}

func rules(path, service string) []any {
	return []any{map[string]any{"http": map[string]any{"paths": []any{map[string]any{
		"path": path, "pathType": "Prefix", "backend": map[string]any{"service": map[string]any{"name": service, "port": map[string]any{"number": 80}}},
	}}}}}
}

// route writes an agent's object for an Ingress.
func (s *stage) route(ctx context.Context, number int, name, service string) {
	object := map[string]any{
		"apiVersion": "herald.dev/v1alpha1", "kind": "HTTPLoadBalancer", "metadata": map[string]any{"name": tenant.RouteName(tenant.KindIngress, "default", name)},
		"spec": map[string]any{
			"kind": tenant.KindIngress, "origin": map[string]any{"namespace": "default", "name": name}, "object": map[string]any{"rules": rules("/", service)},
		},
	}
	s.create(ctx, number, "httploadbalancers", object)
}

// awaitRoutes waits until that many are served.
func (s *stage) awaitRoutes(ctx context.Context, all int) {
	awaitAll(ctx, all, func() (n int) {
		var list v1alpha1.HTTPLoadBalancerList
		step.Do(s.Balancing.API.Get(ctx, herald+"/httploadbalancers", &list))
		for _, lb := range list.Items {
			if meta.IsStatusConditionTrue(lb.Status.Conditions, tenant.ConditionReady) {
				n++
			}
		}
		return n
	})
}
