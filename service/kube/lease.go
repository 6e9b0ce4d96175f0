package kube

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// The times of a Kubernetes Lease. A holder that cannot renew stops working leaseWorks after
// it sent the last accepted renewal. Others take the Lease leaseLasts after they received
// that renewal, which is later. Between the two, pending requests of the old holder end.
//
// No process compares the clocks of two machines: the times in a Lease are for people.
const (
	leaseLasts  = 6 * time.Second
	leaseWorks  = 4 * time.Second
	leaseRenews = 2 * time.Second
	leaseRetry  = 500 * time.Millisecond
	// leasePatience is the maximum of a random delay beyond leaseLasts, so that not all processes take a Lease at once.
	leasePatience = time.Second
	// leaseLongest limits the duration that a Lease states.
	leaseLongest = time.Minute
)

// errLost is the error of a request by a process that is no longer the holder.
var errLost = errors.New("another holds the Lease")

// view is the knowledge of one process about a Lease.
type view struct {
	me string
	// lease is the last received version; nil if there is none.
	lease *coordinationv1.Lease
	// received is the time of that.
	received time.Time
	// deleted means that a Lease was deleted. Its holder may not know of that yet.
	deleted bool
	// sent is when this process sent the last accepted renewal; zero if it is not the holder.
	sent time.Time
	// patience is up to leasePatience, and differs between processes.
	patience time.Duration
}

// step is an action on a Lease.
type step int

const (
	idle step = iota
	create
	take
	renew
	lose // stop working: another process is the holder, or may soon be
)

// decide returns the next step, and when to decide again if the step is idle.
func (v *view) decide(now time.Time) (do step, again time.Time) {
	holder := v.holder()
	switch works := v.sent.Add(leaseWorks); {
	case !v.sent.IsZero() && (holder != v.me || !now.Before(works)):
		return lose, now
	case !v.sent.IsZero() && !now.Before(v.sent.Add(leaseRenews)):
		return renew, works
	case !v.sent.IsZero():
		return idle, v.sent.Add(leaseRenews)
	case v.lease == nil && !v.deleted:
		return create, now
	case v.lease != nil && (holder == "" || holder == v.me): // released, or a take without an answer succeeded
		return take, now
	}
	if over := v.received.Add(v.lasts() + v.patience); now.Before(over) {
		return idle, over
	}
	if v.lease == nil {
		return create, now
	}
	return take, now
}

// holder returns the identity of the holder; empty if there is none.
func (v *view) holder() string {
	if v.lease == nil || v.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *v.lease.Spec.HolderIdentity
}

// lasts returns how long the Lease lasts without a renewal.
func (v *view) lasts() time.Duration {
	if v.lease == nil || v.lease.Spec.LeaseDurationSeconds == nil || *v.lease.Spec.LeaseDurationSeconds <= 0 {
		return leaseLasts
	}
	return min(time.Duration(*v.lease.Spec.LeaseDurationSeconds)*time.Second, leaseLongest)
}

// leases sends requests about one Lease.
type leases interface {
	// create creates the Lease with me as its holder.
	create(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// take makes me the holder, if the Lease still has the version read.
	take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// renew extends the Lease, and fails with errLost if me is not the holder.
	renew(ctx context.Context, me string) (*coordinationv1.Lease, error)
	// release removes the holder, if that is me.
	release(ctx context.Context, me string) error
}

// leaseClient implements leases with an API server.
type leaseClient struct {
	client          rest.Interface
	namespace, name string
}

func (c *leaseClient) create(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	lease := new(coordinationv1.Lease)
	err := c.client.Post().Namespace(c.namespace).Resource("leases").Body(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
		Spec:       heldBy(me, 0),
	}).Do(ctx).Into(lease)
	return lease, err
}

func (c *leaseClient) take(ctx context.Context, me string, read *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	transitions := int32(1)
	if read.Spec.LeaseTransitions != nil {
		transitions = *read.Spec.LeaseTransitions + 1
	}
	return c.patch(ctx, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": read.ResourceVersion},
		"spec":     heldBy(me, transitions),
	})
}

// heldBy returns the specification of a Lease that me takes now.
func heldBy(me string, transitions int32) coordinationv1.LeaseSpec {
	now, seconds := metav1.NowMicro(), int32(leaseLasts/time.Second)
	return coordinationv1.LeaseSpec{
		HolderIdentity: &me, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions,
	}
}

func (c *leaseClient) renew(ctx context.Context, me string) (*coordinationv1.Lease, error) {
	return c.ifMine(ctx, me, operation{"replace", "/spec/renewTime", metav1.NowMicro()})
}

func (c *leaseClient) release(ctx context.Context, me string) error {
	_, err := c.ifMine(ctx, me, operation{"replace", "/spec/holderIdentity", ""})
	return err
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// ifMine changes the Lease if me is its holder, regardless of other changes.
func (c *leaseClient) ifMine(ctx context.Context, me string, change operation) (*coordinationv1.Lease, error) {
	lease, err := c.patch(ctx, types.JSONPatchType, []operation{{"test", "/spec/holderIdentity", me}, change})
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		err = errLost
	}
	return lease, err
}

func (c *leaseClient) patch(ctx context.Context, kind types.PatchType, patch any) (*coordinationv1.Lease, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	lease := new(coordinationv1.Lease)
	err = c.client.Patch(kind).Namespace(c.namespace).Resource("leases").Name(c.name).Body(body).Do(ctx).Into(lease)
	return lease, err
}

// Election describes a leader election by a Kubernetes Lease, which one process at a time holds.
type Election struct {
	// Namespace and Name identify the Lease.
	Namespace, Name string
	// Node is the node of this process, shown in the Lease.
	Node string
	// Role is the role of the holder, for the log.
	Role string
	// Holder, if not nil, is called with the holder's node for each received version of the Lease; empty means no holder.
	Holder func(node string)
}

// NodeOf returns the node of an identity in a Lease: the part before the random suffix of the process.
func NodeOf(identity string) string {
	if i := strings.LastIndexByte(identity, '_'); i >= 0 {
		return identity[:i]
	}
	return identity
}

// Lead takes part in an election until ctx ends. While this process is the holder it runs work, with a context that
// ends before another process can become the holder. Work, and its requests, must end with that context. Lead waits for
// work, and releases the Lease when it stops.
//
// The holder sends a request every two seconds. The others only watch.
func (c *Cluster) Lead(ctx context.Context, log *slog.Logger, e Election, work func(context.Context)) {
	if e.Holder == nil {
		e.Holder = func(string) {}
	}
	l := &elector{
		// A restarted process on the same node is another candidate.
		view:   view{me: e.Node + "_" + crand.Text()[:8], patience: rand.N(leasePatience)},
		leases: &leaseClient{c.coordination, e.Namespace, e.Name}, role: e.Role, work: work, reportHolder: e.Holder, log: log,
		trouble: c.trouble(log), arrived: make(chan *coordinationv1.Lease),
	}
	i := newInformerOfOne(c.coordination, "leases", e.Namespace, e.Name, func(o *coordinationv1.Lease) { trimMeta(&o.ObjectMeta) }, func(lease *coordinationv1.Lease) {
		select {
		case l.arrived <- lease:
		case <-ctx.Done():
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { i.run(ctx, l.trouble) })
	l.run(ctx)
	wg.Wait()
}

// elector runs work while it is the holder of a Lease.
type elector struct {
	view
	leases       leases
	role         string
	work         func(context.Context)
	reportHolder func(node string)
	log          *slog.Logger
	trouble      *trouble
	arrived      chan *coordinationv1.Lease // nil means that there is no Lease

	// The following are set while it works:

	stop  context.CancelFunc
	ended chan struct{} // closed when work has returned
	limit *time.Timer   // ends work unless a renewal is accepted
}

// run takes part until ctx ends.
func (l *elector) run(ctx context.Context) {
	defer l.retire(ctx)
	again := time.NewTimer(0)
	defer again.Stop()
	select { // do not create the Lease before its existence is known
	case lease := <-l.arrived:
		l.receive(lease)
	case <-ctx.Done():
		return
	}
	for {
		do, at := l.decide(time.Now())
		if do != idle {
			at = l.act(ctx, do)
		}
		again.Reset(time.Until(at))
		select {
		case lease := <-l.arrived:
			l.receive(lease)
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// receive stores a received Lease; nil means that there is none.
func (l *elector) receive(lease *coordinationv1.Lease) {
	l.deleted = lease == nil && (l.lease != nil || l.deleted)
	l.lease, l.received = lease, time.Now()
	l.reportHolder(NodeOf(l.holder()))
}

// act takes a step and returns when to decide again.
func (l *elector) act(ctx context.Context, do step) time.Time {
	if do == lose {
		l.stepDown("the Lease could not be renewed, or another process took it")
		return time.Now()
	}
	sent := time.Now()
	limit := sent.Add(leaseWorks)
	if do == renew {
		limit = l.sent.Add(leaseWorks)
	}
	request, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	lease, err := l.request(request, do)
	lost := errors.Is(err, errLost)
	if lost || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // the watch soon brings the new holder
		l.trouble.note(ctx, "leases", nil)
	} else {
		l.trouble.note(ctx, "leases", err)
	}
	if lost {
		l.stepDown("another process took the Lease")
	}
	if err != nil {
		return time.Now().Add(leaseRetry)
	}
	l.receive(lease)
	l.sent = sent
	l.extend(ctx)
	return time.Now()
}

func (l *elector) request(ctx context.Context, do step) (*coordinationv1.Lease, error) {
	switch do {
	case create:
		return l.leases.create(ctx, l.me)
	case take:
		return l.leases.take(ctx, l.me, l.lease)
	default:
		return l.leases.renew(ctx, l.me)
	}
}

// extend starts work, or extends it until leaseWorks after the renewal that was just accepted.
func (l *elector) extend(ctx context.Context) {
	left := time.Until(l.sent.Add(leaseWorks))
	if l.limit != nil && l.limit.Reset(left) {
		return
	}
	if l.limit != nil {
		l.stepDown("the Lease was renewed too late") // although this process is still the holder
		l.sent = time.Time{}
		return
	}
	if left <= 0 {
		l.sent = time.Time{} // the answer came too late
		return
	}
	l.log.Info("this process is now the "+l.role, "identity", l.me)
	working, stop := context.WithCancel(ctx)
	l.stop, l.ended, l.limit = stop, make(chan struct{}), time.AfterFunc(left, stop)
	go func() {
		defer close(l.ended)
		l.work(working)
	}()
}

// stepDown ends work and waits for its return.
func (l *elector) stepDown(reason string) {
	l.sent = time.Time{}
	if l.limit == nil {
		return
	}
	l.limit.Stop()
	l.stop()
	<-l.ended
	l.stop, l.ended, l.limit = nil, nil, nil
	l.log.Info("this process is no longer the "+l.role, "reason", reason)
}

// retire ends work and releases the Lease.
func (l *elector) retire(ctx context.Context) {
	held := !l.sent.IsZero()
	l.stepDown("this process is stopping")
	if !held {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenews)
	defer cancel()
	if err := l.leases.release(ctx, l.me); err != nil && !errors.Is(err, errLost) {
		l.log.Warn("cannot release the Lease; another process takes it when it expires", "reason", explain("leases", err))
	}
}
