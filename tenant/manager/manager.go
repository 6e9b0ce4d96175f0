// Package manager serves tenants from the load-balancing cluster. Of all processes that run it, the holder of a Kubernetes
// Lease probes the tenants' nodes, derives Services, EndpointSlices and routes from the agents' requests, and reports the
// results. The derived objects depend only on the API and on the probes, so it may stop and start at any moment.
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

// echo is the time for own writes to return through the watch. Work that waits for it sees all objects written together.
const echo = 20 * time.Millisecond

// Options configure a manager.
type Options struct {
	// Domain is the parent domain of all tenants' names. Empty disables routes.
	Domain string
	// Namespace is the namespace of its leader Lease, and Identity the holder's name in it.
	Namespace, Identity string
}

// Run serves tenants while this process leads, until ctx ends.
func Run(ctx context.Context, log *slog.Logger, cluster *kube.Cluster, o Options) {
	cluster.Lead(ctx, log, kube.Election{
		Namespace: o.Namespace, Name: tenant.ManagerName, Node: o.Identity, Role: "manager",
	}, func(ctx context.Context) { newManager(log, cluster, o.Domain).run(ctx) })
}

// manager is the state of a leading manager.
type manager struct {
	log     *slog.Logger
	cluster *kube.Cluster
	domain  string
	known   *kube.ManagerInformers
	queue   *kube.Queue
	prober  *prober

	mu         sync.Mutex
	reserved   tenant.Reserved      // nil means outdated
	heartbeats map[string]time.Time // last heartbeat of agents, by tenant
	furnished  map[string]furnished // by tenant
	names      tenant.Names

	tenants map[string]tenantKey // used only by the handler of Tenants
}

// tenantKey identifies a version of a Tenant's specification.
type tenantKey struct {
	uid        types.UID
	generation int64
}

func newManager(log *slog.Logger, cluster *kube.Cluster, domain string) *manager {
	m := &manager{
		log: log, cluster: cluster, domain: domain, known: cluster.ManagerInformers(log, tenant.AgentName, tenant.RouteKinds()), queue: kube.NewQueue(),
		names: make(tenant.Names), heartbeats: make(map[string]time.Time), furnished: make(map[string]furnished), tenants: make(map[string]tenantKey),
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
	for lb := range m.known.Routes.All() { // reserve the names in statuses before others ask for one
		if len(lb.Status.Hostnames) > 0 {
			m.ownName(lb)
		}
	}
	m.queue.Run(ctx, m.work)
}

// listen enqueues work for changed objects.
func (m *manager) listen() {
	m.known.Tenants.Handle(kube.Handlers[*v1alpha1.Tenant]{
		Set: func(t *v1alpha1.Tenant) {
			m.queue.Add(t.Name)
			if m.tenants[t.Name] != (tenantKey{t.UID, t.Generation}) { // ignore changes of the status alone
				m.tenants[t.Name] = tenantKey{t.UID, t.Generation}
				m.addAll() // overlaps with other Tenants may begin or end
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
		if name, ok := v1alpha1.TenantOf(n.Namespace); ok { // limits the work that frequent writes cause
			m.addTenantAfter(name, gatherFalls)
		}
	})
	m.listenToRoutes()
	m.known.Leases.Handle(kube.Handlers[*coordinationv1.Lease]{
		Set:    func(l *coordinationv1.Lease) { m.recordHeartbeat(l); m.addStatus(l.Namespace) },
		Delete: func(l *coordinationv1.Lease) { m.addStatus(l.Namespace) },
	})
	m.known.Nodes.HandleChanges(func(*corev1.Node) { m.addAll() })
	m.known.Pools.HandleChanges(func(*v1alpha1.AddressPool) { m.addAll() })
	m.known.Namespaces.HandleChanges(func(n *corev1.Namespace) { m.addStatus(n.Name) })
	m.known.Services.HandleChanges(func(s *corev1.Service) { m.addOwner(s, echo) })
	// Slices are written before their Service. The longer delay avoids writing the Service twice.
	m.known.Slices.HandleChanges(func(s *discoveryv1.EndpointSlice) { m.addOwner(s, 5*echo) })
}

// recordHeartbeat records an agent's heartbeat Lease. The first Lease seen may be old; comparing its time involves two clocks.
func (m *manager) recordHeartbeat(l *coordinationv1.Lease) {
	name, ok := v1alpha1.TenantOf(l.Namespace)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	if renewed := l.Spec.RenewTime; m.heartbeats[name].IsZero() && renewed != nil && at.Sub(renewed.Time) >= tenant.TimeoutAfter {
		at = renewed.Time
	}
	m.heartbeats[name] = at
}

// addAll enqueues all tenants and their objects after a change that may affect all.
func (m *manager) addAll() {
	m.mu.Lock()
	m.reserved = nil
	m.mu.Unlock()
	for t := range m.known.Tenants.All() {
		m.addTenantAfter(t.Name, 0)
		m.addRoutesOf(v1alpha1.TenantNamespace(t.Name))
	}
}

// addTenantAfter enqueues a tenant and its TCPLoadBalancers after a delay.
func (m *manager) addTenantAfter(name string, after time.Duration) {
	m.queue.AddAfter(name, after)
	for lb := range m.known.LoadBalancers.In(v1alpha1.TenantNamespace(name)) {
		m.queue.AddAfter(kube.Key(lb), after)
	}
}

// When a network fails and recovers, nodes go down and up one after another. These delays handle them together, so that the
// first node to recover does not receive all connections.
const (
	gatherFalls = 100 * time.Millisecond
	gatherRises = time.Second
)

// addProbed enqueues a tenant after one of its nodes began or ceased to answer.
func (m *manager) addProbed(name string, answers bool) {
	after := gatherFalls
	if answers {
		after = gatherRises
	}
	m.addTenantAfter(name, after)
}

// addStatus enqueues the tenant of a namespace, after its requests.
func (m *manager) addStatus(namespace string) {
	if name, ok := v1alpha1.TenantOf(namespace); ok {
		m.queue.AddAfter(name, gatherFalls)
	}
}

// addOwner enqueues the owner of a derived object after a delay.
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

// limits returns the limits of a tenant.
func (m *manager) limits(t *v1alpha1.Tenant) tenant.Limits {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reserved == nil {
		m.reserved = tenant.ReservedBy(m.known.Nodes.All(), m.known.Pools.All())
	}
	return tenant.LimitsOf(t, m.reserved)
}

// nodes returns the permitted nodes of a tenant, and sentences about refused addresses.
func (m *manager) nodes(t *v1alpha1.Tenant) (nodes []tenant.Node, refused []string) {
	reported, ok := m.known.TenantNodes.Get(v1alpha1.TenantNamespace(t.Name) + "/" + tenant.NodesName)
	if !ok {
		return nil, nil
	}
	return m.limits(t).Nodes(reported.Nodes)
}
