// Package assign gives Services of type LoadBalancer their addresses. Of all
// processes that run it one works at a time, the writer, which is the one that holds a
// Lease. It knows nothing that is not in the API: a new writer lists everything,
// takes over every address that some Service has, and only then gives out others.
//
// # Two phases
//
// An address is reserved before it is written to the status of a Service, and
// announced by the nodes, which read it there. It is free again when the server has taken
// a status without it, or the Service is gone; until then nobody else is given it.
// A status is written on top of the version of the Service that was read, so a
// writer that has been away too long changes nothing that its successor has
// decided about. If it put two Services on one address even so, the older keeps
// it where the writer finds them as it begins, and else who had it first.
//
// # No finalizers
//
// A Service that is gone needs nothing from Herald: its addresses were held in
// memory, and nodes withdraw what they do not find in the API. A finalizer would
// have Services and namespaces wait for a writer before they can be deleted.
package assign

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
)

// LeaseName is the name of the writer's Lease.
const LeaseName = "herald-writer"

// Options are those of an [Assigner].
type Options struct {
	// Scope is which Services are Herald's, and whose annotations count.
	Scope service.Scope
	// Namespace is that of the writer's Lease.
	Namespace string
	// Identity is the name of this node, for people.
	Identity string
}

// Assigner gives Services their addresses while it is the writer.
type Assigner struct {
	log     *slog.Logger
	cluster *kube.Cluster
	opts    Options
	counts  counts
	writer  atomic.Pointer[writer] // while it is the writer
	holder  atomic.Value           // the node that holds the Lease, as a string
}

// New is an Assigner, which does nothing until it runs.
func New(log *slog.Logger, cluster *kube.Cluster, opts Options) *Assigner {
	return &Assigner{log: log, cluster: cluster, opts: opts}
}

// Run stands for writer until ctx ends, and works whenever it is. It returns when
// nothing that it has sent is under way any more. A server that is away is waited for.
func (a *Assigner) Run(ctx context.Context) {
	a.cluster.Lead(ctx, a.log, kube.Election{
		Namespace: a.opts.Namespace, Name: LeaseName, Node: a.opts.Identity, Role: "writer", Holder: func(node string) { a.holder.Store(node) },
	}, a.work)
}

// work is done while this process is the writer.
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
func handle[T kube.Object](i *kube.Informer[T], d *writer, set, gone func(*state, T, time.Time)) {
	tell := func(f func(*state, T, time.Time)) func(T) {
		return func(o T) { d.change(func(st *state) { f(st, o, time.Now()) }) }
	}
	i.Handle(kube.Handlers[T]{Set: tell(set), Delete: tell(gone)})
}

// Status tells what an [Assigner] does and has done. Its JSON is part of what `herald status -o json` prints.
type Status struct {
	// Writes reports that it gives Services their addresses now; Services and Refused are zero if it does not.
	Writes bool `json:"writes"`
	// Holder is the node that holds the Kubernetes Lease; empty if none does, or it is not known yet.
	Holder string `json:"holder,omitempty"`
	// Lease is the Lease's namespace/name.
	Lease string `json:"lease"`
	// Services counts those that are Herald's, Refused those of them that lack something they ask for, by [pool.Reason].
	Services int            `json:"-"`
	Refused  map[string]int `json:"refused,omitempty"`

	// The rest counts since the process began.

	// Assignments are statuses written with addresses that the Service had not.
	Assignments uint64 `json:"assignments"`
	// Refusals are statuses written with another reason why the Service lacks something it asks for.
	Refusals uint64 `json:"refusals"`
	// ServiceWrites, PoolWrites and EventWrites are requests to the server, Failures those that it refused.
	ServiceWrites uint64 `json:"serviceWrites"`
	PoolWrites    uint64 `json:"poolWrites"`
	EventWrites   uint64 `json:"eventWrites"`
	Failures      uint64 `json:"-"`
}

type counts struct{ assignments, refusals, serviceWrites, poolWrites, eventWrites, failures atomic.Uint64 }

// Status is that of the moment. It may be called at any time.
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

// API is what the writer asks of a server. [kube.Cluster] is one.
type API interface {
	WriteServiceStatus(ctx context.Context, read *corev1.Service, s corev1.ServiceStatus) (*corev1.Service, error)
	WritePoolStatus(ctx context.Context, read *v1alpha1.AddressPool, s v1alpha1.AddressPoolStatus) error
	WriteEvent(ctx context.Context, e kube.Event) error
}
