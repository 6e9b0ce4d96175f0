package tenants

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/testenv/bench/observe"
	"github.com/herald-vip/herald/testenv/services"
)

const herald = "/apis/herald.dev/v1alpha1"

// size holds the numbers of tenants, and of Services, routes and nodes per tenant.
type size struct{ tenants, services, routes, nodes int }

// scale measures the resources of many tenants. They have no clusters: the lab writes
// their agents' objects. One machine has the addresses of all their nodes, and a
// kube-proxy that answers the probes of all.
func (s *stage) scale(ctx context.Context) error {
	z := size{tenants: 100, services: 100, nodes: 10}
	if s.Quick {
		z = size{tenants: 3, services: 4, nodes: 2}
	}
	all := z.tenants * z.services
	if err := s.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := s.createTenants(ctx, z); err != nil {
		return err
	}
	s.note("many tenants: until the API server has what they ask for", all, "s", time.Since(began).Seconds())
	if err := s.awaitServed(ctx, all); err != nil {
		return err
	}
	s.note("many tenants: until all Services have their VIPs", all, "s", time.Since(began).Seconds())
	if err := s.sizes(ctx, "many tenants", all, z.tenants*z.nodes); err != nil {
		return err
	}
	for i := range s.Trials {
		if err := s.apart(ctx); err != nil {
			return err
		}
		began := time.Now()
		name := fmt.Sprintf("default.new%d", i)
		if err := s.ask(ctx, 0, name, false); err != nil {
			return err
		}
		var lb v1alpha1.TCPLoadBalancer
		err := services.Eventually(ctx, func() error {
			if err := s.Balancing.API.Get(ctx, herald+"/namespaces/"+tenantName(0, "tenant-")+"/tcploadbalancers/"+name, &lb); err != nil {
				return err
			}
			if len(lb.Status.Addresses) == 0 {
				return fmt.Errorf("%s has no VIP", name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.note("many tenants: one Service is asked for, until it has its VIP", all, "ms", time.Since(began).Seconds()*1e3)
		if err := s.Balancing.API.Delete(ctx, herald+"/namespaces/"+tenantName(0, "tenant-")+"/tcploadbalancers/"+name); err != nil {
			return err
		}
	}
	return s.vanishes(ctx, z, all)
}

// prepare makes the load-balancing cluster serve tenants with one machine for all nodes.
func (s *stage) prepare(ctx context.Context) error {
	if err := s.Serve(ctx); err != nil {
		return err
	}
	for _, node := range s.Balancing.Nodes() { // three, each writing the rules of ten thousand Services, would use up two cores
		if err := s.Node(node + "-proxy").Kill(); err != nil {
			return err
		}
	}
	if _, err := s.Node("acme1").Run(ctx, "ip", "route", "add", "local", "10.30.0.0/16", "dev", "lo"); err != nil {
		return err
	}
	_, err := s.Node("r1").Run(ctx, "ip", "route", "add", "10.30.0.0/16", "via", s.acme.Address("acme1").String())
	return err
}

// rest is how long idle measurements last.
func (s *stage) rest() time.Duration {
	if s.Quick {
		return time.Second
	}
	return 30 * time.Second
}

// sizes records memory, and the manager's CPU time while nothing changes.
func (s *stage) sizes(ctx context.Context, what string, all, nodes int) error {
	if err := observe.Pause(ctx, s.rest()); err != nil {
		return err
	}
	manager := s.Node("lb-manager").Daemon("herald").Pid()
	memory, err := observe.Resident(manager)
	if err != nil {
		return err
	}
	s.note(what+": memory of the manager", all, "MB", memory*1e-6)
	for _, node := range s.Balancing.Nodes() {
		memory, err := observe.Resident(s.Node(node + "-speaker").Daemon("herald").Pid())
		if err != nil {
			return err
		}
		s.note(what+": memory of each speaker", all, "MB", memory*1e-6)
	}
	before, err := observe.CPUOf(manager)
	if err != nil {
		return err
	}
	if err := observe.Pause(ctx, s.rest()); err != nil {
		return err
	}
	after, err := observe.CPUOf(manager)
	if err != nil {
		return err
	}
	s.note(fmt.Sprintf("%s: CPU of the manager, which probes %d nodes", what, nodes), all, "%", 100*(after-before).Seconds()/s.rest().Seconds())
	return nil
}

// vanishes measures how long one silent node of one tenant stays in use.
func (s *stage) vanishes(ctx context.Context, z size, all int) error {
	slices := fmt.Sprintf("/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices", tenantName(0, "tenant-"))
	await := func(nodes int) error {
		return services.Eventually(ctx, func() error {
			var list discoveryv1.EndpointSliceList
			if err := s.Balancing.API.Get(ctx, slices, &list); err != nil {
				return err
			}
			for _, slice := range list.Items {
				if len(slice.Endpoints) != nodes {
					return fmt.Errorf("%s has %d nodes, want %d", slice.Name, len(slice.Endpoints), nodes)
				}
			}
			return nil
		})
	}
	for range s.Trials {
		if err := s.apart(ctx); err != nil {
			return err
		}
		began := time.Now()
		if _, err := s.Node("acme1").Run(ctx, "nft", "table ip silent { chain in { type filter hook input priority 0; ip daddr 10.30.0.1 drop; }; }"); err != nil {
			return err
		}
		if err := await(z.nodes - 1); err != nil {
			return err
		}
		s.note("many tenants: a node vanishes, until no Service has it", all, "ms", time.Since(began).Seconds()*1e3)
		if _, err := s.Node("acme1").Run(ctx, "nft", "delete", "table", "ip", "silent"); err != nil {
			return err
		}
		if err := await(z.nodes); err != nil {
			return err
		}
	}
	return nil
}

func tenantName(n int, prefix string) string { return fmt.Sprintf("%st%03d", prefix, n) }

// createTenants writes Tenants and their agents' objects, many in parallel.
func (s *stage) createTenants(ctx context.Context, z size) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for n := range z.tenants {
		g.Go(func() error {
			object := fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {nodes: {cidrs: [10.30.%d.0/24]}, ingress: {className: any}, quota: {services: %d, routes: %d}}}",
				tenantName(n, ""), n, z.services+1, z.routes+1)
			if err := s.Balancing.API.Create(ctx, herald+"/tenants", []byte(object)); err != nil {
				return err
			}
			nodes := v1alpha1.TenantNodes{}
			nodes.APIVersion, nodes.Kind, nodes.Name = "herald.dev/v1alpha1", "TenantNodes", "nodes"
			for i := range z.nodes {
				nodes.Nodes = append(nodes.Nodes, v1alpha1.TenantNode{Name: fmt.Sprintf("n%d", i+1), Addresses: []string{fmt.Sprintf("10.30.%d.%d", n, i+1)}, Ready: true})
			}
			// The namespace and its quota appear a moment after the Tenant.
			err := services.Eventually(ctx, func() error {
				return s.Balancing.API.Create(ctx, herald+"/namespaces/"+tenantName(n, "tenant-")+"/tenantnodes", &nodes)
			})
			if err != nil {
				return err
			}
			for i := range z.services {
				if err := s.ask(ctx, n, fmt.Sprintf("default.s%d", i), z.routes > 0); err != nil {
					return err
				}
			}
			for i := range z.routes {
				if err := s.route(ctx, n, fmt.Sprintf("r%d", i), fmt.Sprintf("s%d", i%z.services)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// ask writes an agent's object for a Service, or for a Service that only routes need.
func (s *stage) ask(ctx context.Context, tenant int, name string, internal bool) error {
	object := fmt.Sprintf("{apiVersion: herald.dev/v1alpha1, kind: TCPLoadBalancer, metadata: {name: %s}, spec: {origin: {namespace: default, name: %s}, "+
		"internal: %t, ipFamilies: [IPv4], ports: [{protocol: TCP, port: 80, targetPort: 30080}]}}", name, name[len("default."):], internal)
	// The API server refuses it until it has counted the quota for the first time.
	return services.Eventually(ctx, func() error {
		return s.Balancing.API.Create(ctx, herald+"/namespaces/"+tenantName(tenant, "tenant-")+"/tcploadbalancers", []byte(object))
	})
}

// awaitServed waits until that many have VIPs.
func (s *stage) awaitServed(ctx context.Context, all int) error {
	for {
		var list v1alpha1.TCPLoadBalancerList
		if err := s.Balancing.API.Get(ctx, herald+"/tcploadbalancers", &list); err != nil {
			return err
		}
		n := 0
		for _, lb := range list.Items {
			if len(lb.Status.Addresses) > 0 {
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
