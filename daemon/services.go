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

// reconnect is how soon a connection that cannot even be prepared, as a
// file is missing, is tried again.
const reconnect = 2 * time.Second

// services is what a speaker does for the VIPs of Kubernetes Services: it passes on
// what the API tells. Nothing else in the process waits for it, and nothing that
// goes wrong with it ends: it is tried again, and in the status meanwhile. A nil one
// does nothing, and is that of a file without a services section.
type services struct {
	log       *slog.Logger
	config    config.Services
	node      string
	namespace string // of the Lease, and of Secrets
	announcer *announce.Announcer
	secrets   *peering.Secrets
	reports   page.Reports
	changed   chan struct{}   // receives when peers may return something else
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

// newServices prepares what the services section of c asks for.
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

// scope is which Services are Herald's.
func scope(c *config.Services) service.Scope {
	return service.Scope{Class: c.LoadBalancerClass, Default: c.DefaultClass, Compatibility: c.Compatibility}
}

// run does the background work until ctx is done, and tells the API of the node, of which fingerprint and reported are.
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

// connect prepares a connection, for as long as it takes; nil if ctx ends before.
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

// listen has the announcer told of what changes.
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

// nodeChanged: which peers are for this node depends on its labels, and its ASN may be among them.
func (s *services) nodeChanged(n *corev1.Node) {
	if n.Name == s.node {
		s.peersChanged()
	}
}

// peersChanged tells of a change of the peers in the API, once all are known.
func (s *services) peersChanged() {
	if s.listed.Load() {
		wake.Up(s.changed)
	}
}

// awaitPeers waits until all is known that decides which peers this node has. A node
// that has not all of its labels yet would do without some of them for a moment.
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

// peers is what the API says of the peers of this node; nothing until all is known.
func (s *services) peers() peering.Resources {
	if s == nil {
		return peering.Resources{}
	}
	if !s.listed.Load() {
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

// drain withdraws all that is announced for Services, with notice.
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

// stop withdraws at once, and for good.
func (s *services) stop() error {
	if s == nil {
		return nil
	}
	return s.announcer.Stop()
}
