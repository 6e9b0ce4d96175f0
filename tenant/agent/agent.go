// Package agent has Services of its cluster, a tenant, served from the load-balancing cluster: of all processes that run it,
// the one that holds a Lease in the tenant's cluster tells of Services and nodes there, and writes back the VIPs that they have.
package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// nodesKey is the key of the work about nodes; those about Services are their namespaces and names with a slash between, those about other
// objects have the kind before that.
const nodesKey = "nodes"

// Options are those of an agent.
type Options struct {
	// Scope is which Services are served from the load-balancing cluster.
	Scope service.Scope
	// AddressType is the type of the nodes' addresses that the load-balancing cluster reaches.
	AddressType corev1.NodeAddressType
	// Namespace is that of its Lease, in its own cluster; Remote is the tenant's in the load-balancing cluster.
	Namespace, Remote string
	// Secret is the name of the Secret in Namespace whose key token is renewed; empty is none.
	Secret string
	// Identity is what people see in the Leases.
	Identity string
}

// Run has Services of the cluster own served from the cluster remote whenever this process is the one that does, until ctx ends.
func Run(ctx context.Context, log *slog.Logger, own, remote *kube.Cluster, o Options) {
	own.Lead(ctx, log, kube.Election{
		Namespace: o.Namespace, Name: tenant.AgentName, Node: o.Identity, Role: "agent",
	}, func(ctx context.Context) { newAgent(log, own, remote, o).run(ctx) })
}

// agent is what one does while it holds the Lease.
type agent struct {
	log         *slog.Logger
	own, remote *kube.Cluster
	opts        Options
	here        *kube.OwnInformers
	there       *kube.RemoteInformers
	queue       *kube.Queue

	mu      sync.Mutex
	began   map[string]time.Time // since when something has been so
	brought sync.Map             // versions of Secrets, by their names there
	told    sync.Map             // what events have said of Ingresses, by their keys
	heard   time.Time            // when the load-balancing cluster last took a renewal
}

func newAgent(log *slog.Logger, own, remote *kube.Cluster, o Options) *agent {
	return &agent{
		log: log, own: own, remote: remote, opts: o, queue: kube.NewQueue(),
		here: own.OwnInformers(log, tenant.AnnotationClass, kinds()), there: remote.RemoteInformers(log, o.Remote),
		began: make(map[string]time.Time), heard: time.Now(),
	}
}

func (a *agent) run(ctx context.Context) {
	a.listen()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.here.Run(ctx) })
	wg.Go(func() { a.there.Run(ctx) })
	wg.Go(func() { a.beat(ctx) })
	wg.Go(func() { a.renew(ctx) })
	wg.Go(func() {
		select {
		case <-a.there.Synced(): // until then nothing was asked for
			a.addAll()
		case <-ctx.Done():
		}
	})
	select {
	case <-a.here.Synced():
	case <-ctx.Done():
		return
	}
	a.queue.Run(ctx, a.work)
}

// listen has work done about what changes.
func (a *agent) listen() {
	a.listenToRoutes()
	a.here.Services.HandleChanges(func(s *corev1.Service) {
		a.queue.Add(kube.Key(s))
		if of := s.Labels[tenant.LabelCopy]; of != "" {
			a.queue.Add(s.Namespace + "/" + of)
		}
	})
	a.here.Slices.HandleChanges(func(s *discoveryv1.EndpointSlice) {
		a.queue.Add(s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName])
	})
	a.here.Nodes.HandleChanges(func(*corev1.Node) { a.queue.Add(nodesKey) })
	a.there.LoadBalancers.HandleChanges(a.addAsked)
	a.there.Nodes.HandleChanges(func(*v1alpha1.TenantNodes) { a.queue.Add(nodesKey) })
}

// addAsked has the Service looked at that something is asked for.
func (a *agent) addAsked(lb *v1alpha1.TCPLoadBalancer) {
	a.queue.Add(tenant.ServiceOf(lb.Name))
}

// endpointsOf are those of a Service.
func (a *agent) endpointsOf(key string) (out []service.Endpoints) {
	namespace, name, _ := strings.Cut(key, "/")
	for s := range a.here.Slices.In(namespace) {
		if s.Labels[discoveryv1.LabelServiceName] != name {
			continue
		}
		if e, ok := service.EndpointsOf(s); ok {
			out = append(out, e)
		}
	}
	return out
}

// addAll has everything looked at.
func (a *agent) addAll() {
	a.queue.Add(nodesKey)
	for lb := range a.there.LoadBalancers.All() {
		a.addAsked(lb)
	}
	for s := range a.here.Services.All() {
		a.queue.Add(kube.Key(s))
	}
	a.addRoutes("")
}
