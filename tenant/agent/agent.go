// Package agent connects a tenant's cluster to the load-balancing cluster. Of all processes that run it, the holder of a
// Kubernetes Lease in the tenant's cluster reports Services, routes and nodes, and writes the assigned VIPs back.
package agent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/tenant"
)

// nodesKey is the queue's key of the nodes. Services have the key namespace/name, routes and Gateways kind/namespace/name.
const nodesKey = "nodes"

// Options configure an agent.
type Options struct {
	// Scope selects the Services that the load-balancing cluster serves.
	Scope service.Scope
	// AddressType is the type of the node addresses that the load-balancing cluster can reach.
	AddressType corev1.NodeAddressType
	// Namespace is the namespace of its leader Lease in its own cluster; Remote is the tenant's namespace in the
	// load-balancing cluster.
	Namespace, Remote string
	// Secret is the name of the Secret in Namespace that holds the renewed token under the key token; empty means none.
	Secret string
	// Identity is the holder's name in the Leases.
	Identity string
}

// Run requests VIPs for Services of the cluster own from the cluster remote while this process leads, until ctx ends.
func Run(ctx context.Context, log *slog.Logger, own, remote *kube.Cluster, o Options) {
	own.Lead(ctx, log, kube.Election{
		Namespace: o.Namespace, Name: tenant.AgentName, Node: o.Identity, Role: "agent",
	}, func(ctx context.Context) { newAgent(log, own, remote, o).run(ctx) })
}

// agent is the state of a leading agent.
type agent struct {
	log         *slog.Logger
	own, remote *kube.Cluster
	opts        Options
	here        *kube.OwnInformers
	there       *kube.RemoteInformers
	queue       *kube.Queue

	mu         sync.Mutex
	began      map[string]time.Time // start of lasting conditions
	brought    sync.Map             // versions of copied Secrets
	events     sync.Map             // last events of Ingresses
	lastAnswer time.Time            // last accepted heartbeat
}

func newAgent(log *slog.Logger, own, remote *kube.Cluster, o Options) *agent {
	kinds := append(tenant.RouteKinds(), tenant.GatewayKind(tenant.KindGateway), tenant.GatewayKind(tenant.KindGatewayClass))
	return &agent{
		log: log, own: own, remote: remote, opts: o, queue: kube.NewQueue(),
		here: own.OwnInformers(log, tenant.AnnotationClass, kinds), there: remote.RemoteInformers(log, o.Remote),
		began: make(map[string]time.Time), lastAnswer: time.Now(),
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
		case <-a.there.Synced(): // no requests are written before
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

// listen enqueues work for changed objects.
func (a *agent) listen() {
	a.listenToRoutes()
	a.here.Services.HandleChanges(func(s *corev1.Service) {
		a.queue.Add(kube.Key(s))
		if original := s.Labels[tenant.LabelCopy]; original != "" {
			a.queue.Add(s.Namespace + "/" + original)
		}
	})
	a.here.Slices.HandleChanges(func(s *discoveryv1.EndpointSlice) {
		a.queue.Add(s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName])
	})
	a.here.Nodes.HandleChanges(func(*corev1.Node) { a.queue.Add(nodesKey) })
	a.there.LoadBalancers.HandleChanges(a.addAsked)
	a.there.Nodes.HandleChanges(func(*v1alpha1.TenantNodes) { a.queue.Add(nodesKey) })
}

// addAsked enqueues the Service of a TCPLoadBalancer.
func (a *agent) addAsked(lb *v1alpha1.TCPLoadBalancer) {
	a.queue.Add(v1alpha1.ServiceOf(lb.Name))
}

// endpointsOf returns the endpoints of a Service.
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

// addAll enqueues all work.
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

// beats is the interval of the heartbeat Lease that shows the manager a living agent.
const beats = 30 * time.Second

// beat renews the heartbeat Lease until ctx ends, and records whether the load-balancing cluster answers.
func (a *agent) beat(ctx context.Context) {
	logged := false
	for {
		seconds := int32(tenant.TimeoutAfter / time.Second)
		err := a.remote.Apply(ctx, tenant.AgentName, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Remote, Name: tenant.AgentName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &a.opts.Identity, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NowMicro())},
		})
		a.mu.Lock()
		timedOut := time.Since(a.lastAnswer) >= tenant.TimeoutAfter
		if err == nil {
			a.lastAnswer = time.Now()
		}
		a.mu.Unlock()
		if timedOut { // update the conditions of all Services
			a.addAll()
		}
		if err != nil && timedOut && !logged && ctx.Err() == nil {
			a.log.Warn("the load-balancing cluster does not answer", "reason", err)
		}
		logged = err != nil && timedOut
		if !wake.Pause(ctx, beats) {
			return
		}
	}
}

// TokenLasts is the requested lifetime of agents' tokens, which the server may shorten. renewals is the longest time between
// two renewals: an administrator may restore an old token in the Secret.
const (
	TokenLasts = 30 * 24 * time.Hour
	renewals   = 6 * time.Hour
)

// renew renews the agent's token for the load-balancing cluster: at once, as the end of the present token is unknown, and
// then long before each new token ends. The kubelet delivers the Secret to all agents.
func (a *agent) renew(ctx context.Context) {
	for a.opts.Secret != "" && ctx.Err() == nil {
		after := time.Minute
		token, lasts, err := a.remote.RequestToken(ctx, a.opts.Remote, tenant.AgentName, TokenLasts)
		if err == nil {
			err = a.own.WriteToken(ctx, a.opts.Namespace, a.opts.Secret, token)
		}
		if err == nil {
			after = max(after, min(renewals, lasts/2))
		} else if ctx.Err() == nil {
			a.log.Warn("cannot renew the token for the load-balancing cluster; retrying in a minute", "reason", err)
		}
		wake.Pause(ctx, after)
	}
}
