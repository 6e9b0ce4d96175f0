package daemon

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/announce"
	"github.com/herald-vip/herald/service/assign"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/peering"
	"github.com/herald-vip/herald/service/report"
	"github.com/herald-vip/herald/speaker/flat"
	"github.com/herald-vip/herald/status/page"
)

// reconnect is the pause before a connection is prepared again, such as after a missing file.
const reconnect = 2 * time.Second

// services connects the Kubernetes API with the announcer. Nothing else in the process waits for it, and it retries
// every failure, which the status shows meanwhile. A nil *services, of a file without a services section, does nothing.
type services struct {
	log       *slog.Logger
	config    config.Services
	node      string
	namespace string // of the Lease, and of Secrets
	announcer *announce.Announcer
	secrets   *peering.Secrets
	reports   page.Reports
	changed   chan struct{}   // receives when the result of peers may have changed
	applied   announce.Config // guarded by the daemon's mutex

	trouble    atomic.Pointer[string]     // why there is no connection yet; nil once there is one
	kubernetes atomic.Pointer[kubernetes] // nil before the connection
	synced     atomic.Bool                // all objects are known
	listed     atomic.Bool                // the peers in the API and this Node are known
}

// kubernetes is a connection to the API.
type kubernetes struct {
	cluster   *kube.Cluster
	informers *kube.Informers
	assigner  *assign.Assigner // nil if this node never gives addresses
}

// newServices prepares the services section of c; nil if there is none.
func newServices(log *slog.Logger, c *config.Config, routes announce.Routes, flatChanged func()) *services {
	if c.Services == nil {
		return nil
	}
	s := &services{
		log: log, config: *c.Services, node: c.NodeName, namespace: kube.Namespace(c.Services.Namespace),
		changed: make(chan struct{}, 1),
	}
	s.announcer = announce.New(
		announce.Options{Log: log, Routes: routes, FlatChanged: flatChanged},
		announce.Config{Node: c.NodeName, Scope: scope(c.Services)})
	s.secrets = peering.NewSecrets(s.namespace, func() { wake.Up(s.changed) })
	return s
}

// scope returns which Services are Herald's.
func scope(c *config.Services) service.Scope {
	return service.Scope{Class: c.LoadBalancerClass, Default: c.DefaultClass, Compatibility: c.Compatibility}
}

// run does the background work until ctx is done. It reports the state of the node, reported, to the API whenever
// fingerprint changes.
func (s *services) run(ctx context.Context, fingerprint func() any, reported func() v1alpha1.NodeState) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { s.announcer.Run(ctx) })
	cluster := s.connect(ctx)
	if cluster == nil {
		return
	}
	parts.Go(func() {
		s.secrets.Run(ctx, func(ctx context.Context, namespace, name string, set func(*corev1.Secret)) {
			cluster.WatchSecret(ctx, s.log, namespace, name, set)
		})
	})
	informers := cluster.Informers(s.log)
	s.listen(informers)
	var assigner *assign.Assigner
	if s.config.Assign {
		assigner = assign.New(s.log, cluster, assign.Options{
			Scope: scope(&s.config), Namespace: s.namespace, Identity: s.node,
		})
		parts.Go(func() { assigner.Run(ctx) })
	}
	s.kubernetes.Store(&kubernetes{cluster, informers, assigner})
	parts.Go(func() { informers.Run(ctx) })
	reporter := report.New(report.Options{
		Node: s.node, Fingerprint: fingerprint, State: reported,
		Owner: func() (types.UID, bool) {
			node, ok := informers.Nodes.Get(s.node)
			if !ok {
				return "", false
			}
			return node.UID, true
		},
		Apply: func(ctx context.Context, n *v1alpha1.NodeStatus) error { return cluster.ApplyNodeStatus(ctx, s.log, n) },
	})
	parts.Go(func() { reporter.Run(ctx) })
	parts.Go(func() { cluster.WatchNodeStatus(ctx, s.log, s.node, reporter.Seen) })
	parts.Go(func() { s.awaitPeers(ctx, informers) })
	select {
	case <-informers.Synced():
		s.announcer.Synced()
		s.synced.Store(true)
	case <-ctx.Done():
	}
}

// connect prepares a connection, however long that takes; it returns nil if ctx ends first.
func (s *services) connect(ctx context.Context) *kube.Cluster {
	for {
		cluster, err := kube.Connect(s.config.Kubeconfig, "herald/"+s.node)
		if err == nil {
			s.trouble.Store(nil)
			return cluster
		}
		if known := s.trouble.Swap(new(err.Error())); known == nil || *known != err.Error() {
			s.log.Warn("no Services are announced yet", "err", err)
		}
		if !wake.Pause(ctx, reconnect) {
			return nil
		}
	}
}

// listen passes changes in the API to the announcer.
func (s *services) listen(i *kube.Informers) {
	a := s.announcer
	i.Services.Handle(kube.Handlers[*corev1.Service]{
		Set:    a.SetService,
		Delete: func(o *corev1.Service) { a.DeleteService(kube.Key(o)) },
	})
	i.Slices.Handle(kube.Handlers[*discoveryv1.EndpointSlice]{
		Set:    a.SetSlice,
		Delete: func(o *discoveryv1.EndpointSlice) { a.DeleteSlice(kube.Key(o)) },
	})
	i.Nodes.Handle(kube.Handlers[*corev1.Node]{
		Set:    func(o *corev1.Node) { a.SetNode(o); s.nodeChanged(o) },
		Delete: func(o *corev1.Node) { a.DeleteNode(o.Name); s.nodeChanged(o) },
	})
	i.Pools.Handle(kube.Handlers[*v1alpha1.AddressPool]{
		Set:    a.SetPool,
		Delete: func(o *v1alpha1.AddressPool) { a.DeletePool(o.Name) },
	})
	i.Peers.Handle(kube.Handlers[*v1alpha1.BGPPeer]{
		Set:    func(*v1alpha1.BGPPeer) { s.peersChanged() },
		Delete: func(*v1alpha1.BGPPeer) { s.peersChanged() },
	})
}

// nodeChanged handles a change of this Node: its labels select the peers, and may contain its ASN.
func (s *services) nodeChanged(n *corev1.Node) {
	if n.Name == s.node {
		s.peersChanged()
	}
}

// peersChanged signals a change of the peers in the API, once all are known.
func (s *services) peersChanged() {
	if s.listed.Load() {
		wake.Up(s.changed)
	}
}

// awaitPeers waits until this Node and all peers are known. Before its labels are complete, the node would miss some
// peers for a moment.
func (s *services) awaitPeers(ctx context.Context, i *kube.Informers) {
	for _, synced := range []<-chan struct{}{i.Nodes.Synced(), i.Peers.Synced()} {
		select {
		case <-synced:
		case <-ctx.Done():
			return
		}
	}
	s.listed.Store(true)
	wake.Up(s.changed)
}

// peers returns the peers of this node from the API; none before all are known.
func (s *services) peers() peering.Resources {
	if s == nil || !s.listed.Load() {
		return peering.Resources{}
	}
	informers := s.kubernetes.Load().informers
	out := peering.Resources{Peers: slices.Collect(informers.Peers.All()), Password: s.secrets.Password}
	if node, ok := informers.Nodes.Get(s.node); ok {
		out.Labels, out.Annotations = node.Labels, node.Annotations
	}
	s.secrets.Keep(out.Peers)
	return out
}

// flat returns the addresses that this node may hold on a flat layer 2.
func (s *services) flat() []flat.Address {
	if s == nil {
		return nil
	}
	return s.announcer.Flat()
}

// drain withdraws all announcements for Services, with graceful shutdown.
func (s *services) drain(reason string) (wait func(context.Context) error) {
	if s == nil {
		return func(context.Context) error { return nil }
	}
	return s.announcer.Drain(reason)
}

// undrain ends a drain.
func (s *services) undrain() {
	if s != nil {
		s.announcer.Undrain()
	}
}

// stop withdraws everything at once and permanently.
func (s *services) stop() error {
	if s == nil {
		return nil
	}
	return s.announcer.Stop()
}
