// Package manager serves tenants: of all processes that run it in the load-balancing cluster, the one that holds a
// Lease probes tenants' nodes, derives Services and EndpointSlices from what agents ask for, and tells tenants
// what became of that. What it derives follows from what is in the API and which nodes answer, so it may end and begin at any moment.
package manager

import (
	"context"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// echo is how long what was just written takes to come back: work that waits for it finds all that was written together.
const echo = 20 * time.Millisecond

// Options are those of a manager.
type Options struct {
	// Domain is where all tenants' names are. Empty has nothing served by name.
	Domain string
	// Namespace is that of its Lease, and Identity is what people see there.
	Namespace, Identity string
}

// Run serves tenants whenever this process is the one that does, until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cluster *kube.Cluster, o Options) {
	cluster.Lead(ctx, log, kube.Election{
		Namespace: o.Namespace, Name: tenant.ManagerName, Node: o.Identity, Role: "manager",
	}, func(ctx context.Context) { newManager(log, cluster, o.Domain).run(ctx) })
}

// manager is what one does while it holds the Lease.
type manager struct {
	log     *slog.Logger
	cluster *kube.Cluster
	domain  string
	known   *kube.ManagerInformers
	queue   *kube.Queue
	prober  *prober

	mu        sync.Mutex
	reserved  tenant.Reserved      // nil: to be found anew
	heard     map[string]time.Time // when agents were, by tenant
	furnished map[string]furnished // what tenants were given
	names     tenant.Names

	tenants map[string]tenantKey // those of the handler of Tenants alone
}

// tenantKey is a Tenant of a name, and what it says.
type tenantKey struct {
	uid        types.UID
	generation int64
}

func newManager(log *slog.Logger, cluster *kube.Cluster, domain string) *manager {
	m := &manager{
		log: log, cluster: cluster, domain: domain, known: cluster.ManagerInformers(log, tenant.AgentName, tenant.RouteKinds()), queue: kube.NewQueue(),
		names: make(tenant.Names), heard: make(map[string]time.Time), furnished: make(map[string]furnished), tenants: make(map[string]tenantKey),
	}
	m.prober = newProber(log, m.addProbed)
	return m
}

func (m *manager) run(ctx context.Context) {
	m.listen()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer m.prober.close()
	wg.Go(func() { m.known.Run(ctx) })
	select {
	case <-m.known.Synced():
	case <-ctx.Done():
		return
	}
	m.keepNames()
	m.queue.Run(ctx, m.work)
}

// listen has work done about what changes.
func (m *manager) listen() {
	m.known.Tenants.Handle(kube.Handlers[*v1alpha1.Tenant]{
		Set: func(t *v1alpha1.Tenant) {
			m.queue.Add(t.Name)
			if m.tenants[t.Name] != (tenantKey{t.UID, t.Generation}) { // or its status alone has changed
				m.tenants[t.Name] = tenantKey{t.UID, t.Generation}
				m.addAll() // others may overlap with it, or no more
			}
		},
		Delete: func(t *v1alpha1.Tenant) {
			delete(m.tenants, t.Name)
			m.queue.Add(t.Name)
			m.addAll()
		},
	})
	m.known.LoadBalancers.HandleChanges(func(lb *v1alpha1.TCPLoadBalancer) {
		m.queue.Add(kube.Key(lb))
		if lb.Spec.Internal {
			m.addRoutesOf(lb.Namespace)
		}
		m.addStatus(lb.Namespace)
	})
	m.known.TenantNodes.HandleChanges(func(n *v1alpha1.TenantNodes) {
		if name, ok := tenant.OfNamespace(n.Namespace); ok { // whoever writes them often has all written often
			m.addTenantAfter(name, gatherFalls)
		}
	})
	m.listenToRoutes()
	m.known.Leases.Handle(kube.Handlers[*coordinationv1.Lease]{
		Set:    func(l *coordinationv1.Lease) { m.hear(l); m.addStatus(l.Namespace) },
		Delete: func(l *coordinationv1.Lease) { m.addStatus(l.Namespace) },
	})
	m.known.Nodes.HandleChanges(func(*corev1.Node) { m.addAll() })
	m.known.Pools.HandleChanges(func(*v1alpha1.AddressPool) { m.addAll() })
	m.known.Namespaces.HandleChanges(func(n *corev1.Namespace) { m.addStatus(n.Name) })
	m.known.Services.HandleChanges(func(s *corev1.Service) { m.addOwner(s, echo) })
	// Slices are written first: the Service is known by then, and not written twice.
	m.known.Slices.HandleChanges(func(s *discoveryv1.EndpointSlice) { m.addOwner(s, 5*echo) })
}

// hear takes note of an agent's Lease. The first that is seen of it may be old; whether it is depends on two clocks.
func (m *manager) hear(l *coordinationv1.Lease) {
	name, ok := tenant.OfNamespace(l.Namespace)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	if renewed := l.Spec.RenewTime; m.heard[name].IsZero() && renewed != nil && at.Sub(renewed.Time) >= tenant.SilentAfter {
		at = renewed.Time
	}
	m.heard[name] = at
}

// addAll has everything looked at again, as what all of it depends on has changed.
func (m *manager) addAll() {
	m.mu.Lock()
	m.reserved = nil
	m.mu.Unlock()
	for t := range m.known.Tenants.All() {
		m.addTenantAfter(t.Name, 0)
		m.addRoutesOf(tenant.Namespace(t.Name))
	}
}

// addTenantAfter has a tenant looked at after a while, and all that it asks for.
func (m *manager) addTenantAfter(name string, after time.Duration) {
	m.queue.AddAfter(name, after)
	for lb := range m.known.LoadBalancers.In(tenant.Namespace(name)) {
		m.queue.AddAfter(kube.Key(lb), after)
	}
}

// Of a network that fails and comes back, nodes cease to answer one after the other, and begin to. All that do so together are
// acted on together, so that not all connections are sent to the first that is back.
const (
	gatherFalls = 100 * time.Millisecond
	gatherRises = time.Second
)

// addProbed has what depends on the nodes of a tenant looked at again, of which one answers now, or ceases to.
func (m *manager) addProbed(name string, answers bool) {
	after := gatherFalls
	if answers {
		after = gatherRises
	}
	m.addTenantAfter(name, after)
}

// addStatus has the tenant of a namespace looked at, when what it asks for has been.
func (m *manager) addStatus(namespace string) {
	if name, ok := tenant.OfNamespace(namespace); ok {
		m.queue.AddAfter(name, gatherFalls)
	}
}

// addOwner has that looked at after a while from which something was derived.
func (m *manager) addOwner(o kube.Object, after time.Duration) {
	for _, owner := range o.GetOwnerReferences() {
		key := o.GetNamespace() + "/" + owner.Name
		if owner.Kind == "HTTPLoadBalancer" {
			key = routePrefix + key
		}
		m.queue.AddAfter(key, after)
	}
	m.addStatus(o.GetNamespace())
}

// limits are those of a tenant.
func (m *manager) limits(t *v1alpha1.Tenant) tenant.Limits {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reserved == nil {
		m.reserved = tenant.ReservedBy(m.known.Nodes.All(), m.known.Pools.All())
	}
	return tenant.LimitsOf(t, m.reserved)
}

// nodes are those of a tenant that it may have, and what to say of the others.
func (m *manager) nodes(t *v1alpha1.Tenant) (nodes []tenant.Node, refused []string) {
	told, ok := m.known.TenantNodes.Get(tenant.Namespace(t.Name) + "/" + tenant.NodesName)
	if !ok {
		return nil, nil
	}
	return m.limits(t).Nodes(told.Nodes)
}
