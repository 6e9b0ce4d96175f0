//go:build e2e

package tenants

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

const allowed = `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"], ports: 20000-32767, probe: {protocol: None}}, quota: {services: 5}}`

// derived returns the objects of a tenant's Service in the load-balancing cluster.
func (b *lbCluster) derived(t *testing.T, name, service string) (s corev1.Service, endpoints []string) {
	t.Helper()
	derived, _ := tenant.DerivedNames("default." + service)
	at := v1alpha1.TenantNamespace(name)
	b.Do(t, http.MethodGet, "/api/v1/namespaces/"+at+"/services/"+derived, nil, &s)
	var list discoveryv1.EndpointSliceList
	b.Do(t, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/"+at+"/endpointslices?labelSelector=kubernetes.io/service-name="+derived, nil, &list)
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			endpoints = append(endpoints, fmt.Sprintf("%s %d", e.Addresses[0], *slice.Ports[0].Port))
		}
	}
	slices.Sort(endpoints)
	return s, endpoints
}

// TestFlow follows a Service from the tenant's cluster to the load-balancing one and
// back, and its removal.
func TestFlow(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", allowed)
	c := startTenant(t, b, "acme")

	c.expose(t, "web", "", "ipFamilyPolicy: PreferDualStack, sessionAffinity: ClientIP, loadBalancerSourceRanges: [192.0.2.0/24]")
	web := c.becomes(t, "web", tenant.ReasonServed)
	if in := web.Status.LoadBalancer.Ingress; len(in) != 2 || in[0].IP != "10.1.0.0" && in[0].IP != "10.1.0.1" || *in[0].IPMode != corev1.LoadBalancerIPModeVIP {
		t.Errorf("the status is %+v", in)
	}
	port := web.Spec.Ports[0].NodePort
	s, endpoints := b.derived(t, "acme", "web")
	want := []string{}
	for _, host := range []string{"10.20.0.1", "10.20.0.2", "10.20.0.3", "fd00:20::1", "fd00:20::2", "fd00:20::3"} {
		want = append(want, fmt.Sprintf("%s %d", host, port))
	}
	if !slices.Equal(endpoints, want) {
		t.Errorf("endpoints %q, want %q", endpoints, want)
	}
	if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || !slices.Equal(s.Spec.LoadBalancerSourceRanges, []string{"192.0.2.0/24"}) || s.Spec.Ports[0].NodePort != 0 {
		t.Errorf("the derived Service is %+v", s.Spec)
	}

	t.Run("a node port", func(t *testing.T) {
		c.expose(t, "nodeport", tenant.AnnotationClass+": "+tenant.ClassKubeLB, "type: NodePort")
		got := c.becomes(t, "nodeport", tenant.ReasonServed)
		if !strings.HasPrefix(got.Annotations[service.AnnotationAssigned], "10.1.0.") || len(got.Status.LoadBalancer.Ingress) > 0 {
			t.Errorf("it has the annotations %v and the status %+v", got.Annotations, got.Status)
		}
	})
	t.Run("a node goes", func(t *testing.T) {
		site.Must(t, c.API.Delete(t.Context(), "/api/v1/nodes/n3"))
		site.Eventually(t, site.Soon, func() error {
			_, endpoints := b.derived(t, "acme", "web")
			return site.ErrorIf(len(endpoints) != 4, "endpoints %q, want the endpoints of two nodes", endpoints)
		})
	})
	t.Run("no node has an address", func(t *testing.T) {
		addresses := func(kind string) {
			for n := 1; n <= 2; n++ {
				site.Must(t, c.API.Patch(t.Context(), fmt.Sprintf("/api/v1/nodes/n%d/status", n), map[string]any{"status": map[string]any{
					"addresses": []map[string]string{{"type": kind, "address": fmt.Sprintf("10.20.0.%d", n)}, {"type": kind, "address": fmt.Sprintf("fd00:20::%d", n)}},
				}}))
			}
		}
		addresses("ExternalIP")
		c.expose(t, "marker", "", "") // when it is served, the nodes have been reported, too
		c.becomes(t, "marker", tenant.ReasonServed)
		if _, endpoints := b.derived(t, "acme", "web"); len(endpoints) < 2 { // the node that lost its address first is out, and no other
			t.Errorf("endpoints %q, want the endpoints of at least one node", endpoints)
		}
		addresses("InternalIP")
		site.Must(t, c.API.Delete(t.Context(), servicesPath+"/marker"))
		b.gone(t, "acme", "marker")
		site.Eventually(t, site.Soon, func() error {
			_, endpoints := b.derived(t, "acme", "web")
			return site.ErrorIf(len(endpoints) != 4, "endpoints %q, want the endpoints of two nodes", endpoints)
		})
	})
	t.Run("the tenant's condition is reported", func(t *testing.T) {
		site.Eventually(t, site.Soon, func() error {
			s := b.tenant(t, "acme").Status
			return site.ErrorIf(s.Nodes != "2/2" || s.Services != "2/5" || s.Addresses != 3, "the status is %+v", s)
		})
	})
	t.Run("a Service goes", func(t *testing.T) {
		site.Must(t, c.API.Delete(t.Context(), servicesPath+"/web"))
		b.gone(t, "acme", "web")
	})
	t.Run("a Service is of another type", func(t *testing.T) {
		site.Must(t, c.API.Patch(t.Context(), servicesPath+"/nodeport", map[string]any{"metadata": map[string]any{"annotations": map[string]any{tenant.AnnotationClass: nil}}}))
		b.gone(t, "acme", "nodeport")
		site.Eventually(t, site.Soon, func() error {
			s, err := c.service(t.Context(), "nodeport")
			return site.Check(err, s.Annotations[service.AnnotationAssigned] != "" || len(s.Status.Conditions) > 0, "it still has %v and %v", s.Annotations, s.Status.Conditions)
		})
	})
	t.Run("the Tenant goes", func(t *testing.T) {
		c.expose(t, "last", "", "")
		c.becomes(t, "last", tenant.ReasonServed)
		site.Must(t, b.API.Delete(t.Context(), site.HeraldPath("tenants")+"/acme"))
		site.Eventually(t, site.Soon, func() error {
			return site.ErrorIf(b.API.Get(t.Context(), "/api/v1/namespaces/tenant-acme", nil) == nil, "the namespace is there")
		})
	})
}

// While the manager has not answered about a route, its earlier derived objects may
// need any earlier backend, and no other Service is copied.
func TestCopiesAreOfBackends(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", strings.Replace(allowed, "quota:", "ingress: {className: traefik}, quota:", 1))
	c := startTenant(t, b, "acme")
	const selects = "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {selector: {app: web}, ports: [{name: http, port: 80}]}}"
	c.Apply(t, servicesPath, fmt.Sprintf(selects, "web"))
	c.Apply(t, ingressesPath, ingress)
	copied := func(name string) error { return c.API.Get(t.Context(), servicesPath+"/"+tenant.CopyName(name), nil) }
	site.Eventually(t, site.Soon, func() error { return copied("web") })
	const asked = "/apis/herald.dev/v1alpha1/namespaces/tenant-acme/httploadbalancers/ingress.default.web"
	generation := func() (g struct{ Metadata struct{ Generation int64 } }, err error) {
		err = b.API.Get(t.Context(), asked, &g)
		return g, err
	}
	site.Eventually(t, site.Soon, func() error { _, err := generation(); return err })
	site.Must(t, b.manager.Process.Kill())
	site.Must(t, c.API.Patch(t.Context(), ingressesPath+"/web", map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"host": "a.acme.lb.example.test"}}}}))
	site.Eventually(t, site.Soon, func() error {
		g, err := generation()
		return errors.Join(err, site.ErrorIf(g.Metadata.Generation < 2, "the generation is %d", g.Metadata.Generation))
	})
	c.Apply(t, servicesPath, fmt.Sprintf(selects, "other"))
	c.expose(t, "later", "", "") // it is handled afterwards
	site.Eventually(t, site.Soon, func() error {
		return b.API.Get(t.Context(), "/apis/herald.dev/v1alpha1/namespaces/tenant-acme/tcploadbalancers/default.later", nil)
	})
	if copied("other") == nil {
		t.Error("a Service without requests from routes has a copy")
	}
	site.Must(t, copied("web"))
}

// gone waits until no object of a Service is left.
func (b *lbCluster) gone(t *testing.T, name, service string) {
	t.Helper()
	derived, _ := tenant.DerivedNames("default." + service)
	at := v1alpha1.TenantNamespace(name)
	site.Eventually(t, site.Soon, func() error {
		for _, path := range []string{
			"/api/v1/namespaces/" + at + "/services/" + derived,
			"/apis/herald.dev/v1alpha1/namespaces/" + at + "/tcploadbalancers/default." + service,
			"/apis/discovery.k8s.io/v1/namespaces/" + at + "/endpointslices/" + derived + "-ipv4",
		} {
			if err := b.API.Get(t.Context(), path, nil); err == nil {
				return fmt.Errorf("%s is there", path)
			}
		}
		return nil
	})
}

// TestRefusals checks that each refusal is reported on the object that its owner looks at.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"], ports: 31000-32767, probe: {protocol: None}}, quota: {services: 2}}`)
	b.admit(t, "late", allowed)
	c := startTenant(t, b, "acme")

	says := func(name, reason, message string) {
		t.Helper()
		s := c.becomes(t, name, reason)
		if m := s.Status.Conditions[0].Message; !strings.Contains(m, message) || len(s.Status.LoadBalancer.Ingress) > 0 {
			t.Errorf("%s has the message %q, want %q, and the status %+v", name, m, message, s.Status.LoadBalancer)
		}
	}
	c.Apply(t, servicesPath, `{apiVersion: v1, kind: Service, metadata: {name: low}, spec: {type: LoadBalancer, ports: [{port: 80, nodePort: 30080}]}}`)
	says("low", tenant.ReasonRefused, "node port 30080 is not in the nodes.ports of the Tenant, 31000-32767")
	c.expose(t, "mistyped", "herald.dev/adresses: 10.1.0.5", "")
	says("mistyped", string(pool.InvalidClaim), "there is no annotation herald.dev/adresses")
	c.expose(t, "nowhere", "herald.dev/pool: nowhere", "ports: [{port: 80, nodePort: 31080}]")
	says("nowhere", string(pool.NoPool), "nowhere")
	c.expose(t, "second", "", "ports: [{port: 80, nodePort: 31081}]")
	c.becomes(t, "second", tenant.ReasonServed)
	c.expose(t, "third", "", "ports: [{port: 80, nodePort: 31082}]")
	says("third", tenant.ReasonRefused, "exceeded quota")

	site.Eventually(t, site.Soon, func() error {
		s := b.tenant(t, "acme").Status
		return site.ErrorIf(len(s.Refused) != 2 || !strings.HasPrefix(s.Refused[0], "default.nowhere: ") || !strings.HasPrefix(s.Refused[1], "default.third: "), "acme is refused %q", s.Refused)
	})
	b.says(t, "late", "overlaps 10.20.0.0/24 of the tenant acme")

	second := site.Get[corev1.Service](t)(c.service(t.Context(), "second"))
	site.Must(t, c.API.Patch(t.Context(), servicesPath+"/second", map[string]any{"metadata": map[string]any{"annotations": map[string]string{"herald.dev/adresses": "10.1.0.5"}}}))
	kept := c.becomes(t, "second", string(pool.InvalidClaim)) // a mistake takes nothing away
	if s, _ := b.derived(t, "acme", "second"); len(s.Status.LoadBalancer.Ingress) == 0 || !slices.Equal(service.StatusAddresses(&kept), service.StatusAddresses(&second)) {
		t.Errorf("after a mistake the derived object is %+v, the Service %+v", s.Status.LoadBalancer, kept.Status.LoadBalancer)
	}

	site.Must(t, b.API.Delete(t.Context(), site.HeraldPath("tenants")+"/acme"))
	site.Eventually(t, site.Soon, func() error {
		conditions := fmt.Sprint(b.tenant(t, "late").Status.Conditions)
		return site.ErrorIf(strings.Contains(conditions, "overlaps"), "after acme's deletion late has %s", conditions)
	})
}

// TestSameObjectsHoweverItGoes changes Services and nodes of a tenant while agent,
// manager and API servers are killed, frozen and started. In the end the derived
// objects match the tenant's objects.
func TestSameObjectsHoweverItGoes(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"], ports: 20000-32767, probe: {protocol: None}}, quota: {services: 50}}`)
	c := startTenant(t, b, "acme")
	steps := site.Scale(600, 60)
	rng := rand.New(rand.NewPCG(17, 4))
	there := make(map[string]bool) // Services
	nodes := map[int]bool{1: true, 2: true, 3: true}
	agent, manager := true, true
	change := map[string]func(){
		"a Service comes or goes": func() {
			name := fmt.Sprint("s", rng.IntN(8))
			if there[name] {
				site.Must(t, c.API.Delete(t.Context(), servicesPath+"/"+name))
			} else {
				c.expose(t, name, "", []string{"", "sessionAffinity: ClientIP", "ipFamilyPolicy: PreferDualStack"}[rng.IntN(3)])
			}
			there[name] = !there[name]
		},
		"a Service changes": func() {
			for _, name := range slices.Sorted(maps.Keys(there)) {
				if there[name] {
					spec := map[string]any{"type": "NodePort", "loadBalancerSourceRanges": nil}
					if rng.IntN(3) > 0 {
						spec = map[string]any{"type": "LoadBalancer", "loadBalancerSourceRanges": []string{fmt.Sprintf("192.0.%d.0/24", rng.IntN(200))}}
					}
					site.Must(t, c.API.Patch(t.Context(), servicesPath+"/"+name, map[string]any{"spec": spec}))
					return
				}
			}
		},
		"a node comes or goes": func() {
			n := 1 + rng.IntN(5)
			if nodes[n] {
				site.Must(t, c.API.Delete(t.Context(), fmt.Sprint("/api/v1/nodes/n", n)))
			} else {
				c.node(t, n)
			}
			nodes[n] = !nodes[n]
		},
		"the agent is killed or comes": func() {
			if agent {
				stop(t, c.agent)
			} else {
				c.startAgent(t)
			}
			agent = !agent
		},
		"the manager is killed or comes": func() {
			if manager {
				stop(t, b.manager)
			} else {
				b.startManager(t)
			}
			manager = !manager
		},
		"the agent stands still for a moment": func() {
			if agent {
				site.Must(t, c.agent.Process.Signal(syscall.SIGSTOP))
				c.expose(t, "meanwhile", "", "")
				site.Must(t, c.API.Delete(t.Context(), servicesPath+"/meanwhile"))
				site.Must(t, c.agent.Process.Signal(syscall.SIGCONT))
			}
		},
		"the API server there is away for a moment": func() { b.StopServer(t); b.StartServer(t) },
		"the tenant's is away for a moment":         func() { c.StopServer(t); c.StartServer(t) },
		"a derived Service is deleted by hand": func() {
			for name := range there {
				derived, _ := tenant.DerivedNames("default." + name)
				_ = b.API.Delete(t.Context(), "/api/v1/namespaces/tenant-acme/services/"+derived) // if it exists
			}
		},
	}
	kinds := slices.Sorted(maps.Keys(change))
	for range steps {
		what := kinds[rng.IntN(len(kinds))]
		t.Log(what)
		change[what]()
	}
	if !agent {
		c.startAgent(t)
	}
	if !manager {
		b.startManager(t)
	}
	site.Eventually(t, site.Soon, func() error { return b.follows(t, c) })
}

// follows checks that the derived objects match the tenant's objects.
func (b *lbCluster) follows(t *testing.T, c *tenantCluster) error {
	t.Helper()
	var all corev1.ServiceList
	var nodes corev1.NodeList
	c.Do(t, http.MethodGet, "/api/v1/services", nil, &all)
	c.Do(t, http.MethodGet, "/api/v1/nodes", nil, &nodes)
	var derived corev1.ServiceList
	var slicesThere discoveryv1.EndpointSliceList
	var asked v1alpha1.TCPLoadBalancerList
	b.Do(t, http.MethodGet, "/api/v1/namespaces/tenant-acme/services", nil, &derived)
	b.Do(t, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/tenant-acme/endpointslices", nil, &slicesThere)
	b.Do(t, http.MethodGet, "/apis/herald.dev/v1alpha1/namespaces/tenant-acme/tcploadbalancers", nil, &asked)
	told := tenant.NodesOf(func(yield func(*corev1.Node) bool) {
		for i := range nodes.Items {
			if !yield(&nodes.Items[i]) {
				return
			}
		}
	}, corev1.NodeInternalIP)
	acme := b.tenant(t, "acme")
	backends, _ := tenant.LimitsOf(&acme, nil).Nodes(told)
	scope := service.Scope{Class: tenant.Class, Default: true}
	served := 0
	for i := range all.Items {
		s := &all.Items[i]
		mode := tenant.ModeOf(s, scope)
		if mode == tenant.NotServed {
			if len(s.Status.Conditions) > 0 || len(s.Status.LoadBalancer.Ingress) > 0 {
				return fmt.Errorf("%s, which is not served, has %+v", s.Name, s.Status)
			}
			continue
		}
		served++
		spec := site.Get[*v1alpha1.TCPLoadBalancerSpec](t)(tenant.Ask(s, mode, nil, slices.Values([]service.Endpoints{})))
		at := slices.IndexFunc(asked.Items, func(lb v1alpha1.TCPLoadBalancer) bool {
			return lb.Name == v1alpha1.LoadBalancerName(s.Namespace+"/"+s.Name)
		})
		if at < 0 {
			return fmt.Errorf("no Service has requested %s", s.Name)
		}
		lb := &asked.Items[at]
		lb.Spec = *spec
		want := tenant.Derive("acme", lb, tenant.Backends{Nodes: backends, Answers: func(string) bool { return true }, Limit: int(acme.Spec.Nodes.MaxPerService)})
		at = slices.IndexFunc(derived.Items, func(s corev1.Service) bool {
			return s.Name == want.Service.Name && tenant.SameService(&s, want.Service)
		})
		if at < 0 {
			return fmt.Errorf("the Service derived from %s is not %+v", s.Name, want.Service)
		}
		for _, slice := range want.Slices {
			if !slices.ContainsFunc(slicesThere.Items, func(existing discoveryv1.EndpointSlice) bool {
				return existing.Name == slice.Name && tenant.SameSlice(&existing, slice)
			}) {
				return fmt.Errorf("the slice derived from %s is not %+v", s.Name, slice)
			}
		}
		if got, there := service.StatusAddresses(s), service.StatusAddresses(&derived.Items[at]); len(there) == 0 || !slices.Equal(got, there) {
			return fmt.Errorf("%s has the addresses %v, and its derived Service %v", s.Name, got, there)
		}
	}
	if len(derived.Items) != served || len(asked.Items) != served {
		return fmt.Errorf("%d Services are derived from %d that are asked for, want %d", len(derived.Items), len(asked.Items), served)
	}
	families := 0
	for _, s := range derived.Items {
		families += len(s.Spec.IPFamilies)
	}
	return site.ErrorIf(len(slicesThere.Items) != families, "there are %d slices, want %d", len(slicesThere.Items), families)
}
