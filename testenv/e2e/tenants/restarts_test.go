//go:build e2e

package tenants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/tenant"
	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestSameObjectsHoweverItGoes changes Services and nodes of a tenant while agent,
// manager and API servers are killed, frozen and started. In the end the derived
// objects match the tenant's objects.
func TestSameObjectsHoweverItGoes(t *testing.T) {
	t.Parallel()
	b := startLBCluster(t)
	b.admit(t, "acme", `{nodes: {cidrs: [10.20.0.0/24, "fd00:20::/64"], ports: 20000-32767, probe: {protocol: None}}, quota: {services: 50}}`)
	c := startTenant(t, b, "acme")
	steps := 60
	if site.Nightly() {
		steps = 600
	}
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
		spec, err := tenant.Ask(s, mode, nil, slices.Values([]service.Endpoints{}))
		site.Must(t, err)
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
