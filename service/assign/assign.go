// Package assign assigns addresses to Services of type LoadBalancer. Of all processes that run it one works at a time:
// the writer, which holds a Kubernetes Lease. All its state comes from the API: a new writer lists all objects, adopts
// every address that a Service has, and only then assigns others.
//
// # Two phases
//
// The writer reserves an address before it writes it to the status of a Service. Nodes read it there and announce it.
// The address is free again after the server has accepted a status without it, or after the Service is deleted; until
// then no other Service gets it. The server accepts a status only for the version of the Service that was read, so an
// outdated writer cannot overwrite decisions of its successor. If two Services have one address nevertheless, a
// starting writer leaves it to the older Service; a running writer leaves it to the Service that had it first.
//
// # No finalizers
//
// A deleted Service needs no work: the writer holds its addresses in memory only, and nodes withdraw addresses that are
// not in the API. With a finalizer, the deletion of Services and namespaces would have to wait for a writer.
package assign

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
)

// LeaseName is the name of the writer's Lease.
const LeaseName = "herald-writer"

// Options configure an [Assigner].
type Options struct {
	// Scope selects Herald's Services and the annotations that count.
	Scope service.Scope
	// Namespace is the namespace of the writer's Lease.
	Namespace string
	// Identity is the name of this node, shown in the Lease and in events.
	Identity string
}

// Assigner assigns addresses to Services while it is the writer.
type Assigner struct {
	log     *slog.Logger
	cluster *kube.Cluster
	opts    Options
	counts  counts
	writer  atomic.Pointer[writer] // nil unless it is the writer
	holder  atomic.Value           // the node that holds the Lease, as a string
}

// New returns an Assigner. It does nothing until it runs.
func New(log *slog.Logger, cluster *kube.Cluster, opts Options) *Assigner {
	return &Assigner{log: log, cluster: cluster, opts: opts}
}

// Run takes part in the election of the writer until ctx ends, and works while it is the
// writer. It returns after all its requests have ended. It retries while the server is away.
func (a *Assigner) Run(ctx context.Context) {
	a.cluster.Lead(ctx, a.log, kube.Election{
		Namespace: a.opts.Namespace, Name: LeaseName, Node: a.opts.Identity, Role: "writer", Holder: func(node string) { a.holder.Store(node) },
	}, a.work)
}

// work runs while this process is the writer.
func (a *Assigner) work(ctx context.Context) {
	informers := a.cluster.Informers(a.log)
	d := newWriter(a.log, a.cluster, a.opts, &a.counts)
	d.latest = informers.Services.Get
	handle(informers.Services, d, (*state).setService, (*state).deleteService)
	handle(informers.Namespaces, d, (*state).setNamespace, (*state).deleteNamespace)
	handle(informers.Pools, d, (*state).setPool, (*state).deletePool)
	handle(informers.Nodes, d, (*state).setNode, (*state).deleteNode)
	handle(informers.NodeStatuses, d, (*state).setNodeStatus, (*state).deleteNodeStatus)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { informers.Run(ctx) })
	select {
	case <-informers.Synced():
	case <-ctx.Done():
		return
	}
	a.writer.Store(d)
	defer a.writer.Store(nil)
	d.run(ctx)
}

// handle passes the objects of one kind to the state of a writer.
func handle[T kube.Object](i *kube.Informer[T], d *writer, set, remove func(*state, T, time.Time)) {
	pass := func(f func(*state, T, time.Time)) func(T) {
		return func(o T) { d.change(func(st *state) { f(st, o, time.Now()) }) }
	}
	i.Handle(kube.Handlers[T]{Set: pass(set), Delete: pass(remove)})
}

// Status is the state of an [Assigner]. Its JSON is part of the output of `herald status -o json`.
type Status struct {
	// Writes reports that it is the writer; Services and Refused are zero if it is not.
	Writes bool `json:"writes"`
	// Holder is the node that holds the Kubernetes Lease; empty if none does, or it is not known yet.
	Holder string `json:"holder,omitempty"`
	// Lease is the Lease's namespace/name.
	Lease string `json:"lease"`
	// Services counts Herald's Services, Refused the Services with an unmet request, by [pool.Reason].
	Services int            `json:"-"`
	Refused  map[string]int `json:"refused,omitempty"`

	// The following count from the start of the process.

	// Assignments counts written statuses with new addresses.
	Assignments uint64 `json:"assignments"`
	// Refusals counts written statuses with a new reason of an unmet request.
	Refusals uint64 `json:"refusals"`
	// ServiceWrites, PoolWrites and EventWrites count requests to the server, Failures the failed requests.
	ServiceWrites uint64 `json:"serviceWrites"`
	PoolWrites    uint64 `json:"poolWrites"`
	EventWrites   uint64 `json:"eventWrites"`
	Failures      uint64 `json:"-"`
}

type counts struct{ assignments, refusals, serviceWrites, poolWrites, eventWrites, failures atomic.Uint64 }

// Status returns the present state. It may be called at any time.
func (a *Assigner) Status() Status {
	holder, _ := a.holder.Load().(string)
	s := Status{
		Holder: holder, Lease: a.opts.Namespace + "/" + LeaseName,
		Assignments: a.counts.assignments.Load(), Refusals: a.counts.refusals.Load(),
		ServiceWrites: a.counts.serviceWrites.Load(), PoolWrites: a.counts.poolWrites.Load(),
		EventWrites: a.counts.eventWrites.Load(), Failures: a.counts.failures.Load(),
	}
	if d := a.writer.Load(); d != nil {
		s.Writes = true
		d.change(func(st *state) { s.Services, s.Refused = st.count() })
	}
	return s
}

// API is the writer's interface to the server. [kube.Cluster] implements it.
type API interface {
	WriteServiceStatus(ctx context.Context, read *corev1.Service, s corev1.ServiceStatus) (*corev1.Service, error)
	WriteStatus(ctx context.Context, read kube.Object, status any) error
	WriteEvent(ctx context.Context, e kube.Event) error
}
