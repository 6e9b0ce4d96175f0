package kube

import (
	"context"
	crand "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Election is about a Lease, of which one process at a time is the holder.
type Election struct {
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Node is where this process runs; people see it in the Lease.
	Node string
	// Role is what the holder is, for the log.
	Role string
	// Heard is told the node of the holder whenever the Lease is heard of, empty if there is none. It may be nil.
	Heard func(node string)
}

// NodeOf is the node of an identity in a Lease, which is followed by what tells its processes apart.
func NodeOf(identity string) string {
	if i := strings.LastIndexByte(identity, '_'); i >= 0 {
		return identity[:i]
	}
	return identity
}

// Lead takes part in an election until ctx ends. Whenever this process is the
// holder it calls work, with a context that ends before another can be. Work is to
// return when its context ends, which its requests do as well; Lead waits for it,
// and gives the Lease back when it stops.
//
// The holder sends a request every two seconds. The others send none: they watch.
func (c *Cluster) Lead(ctx context.Context, log *slog.Logger, e Election, work func(context.Context)) {
	if e.Heard == nil {
		e.Heard = func(string) {}
	}
	l := &elector{
		// A process that starts anew on the same node is another one.
		view:   view{me: e.Node + "_" + crand.Text()[:8], patience: rand.N(leasePatience)},
		leases: &leaseClient{c.coordination, e.Namespace, e.Name}, role: e.Role, work: work, heardOf: e.Heard, log: log,
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

// elector has work done while it is the holder of a Lease.
type elector struct {
	view
	leases  leases
	role    string
	work    func(context.Context)
	heardOf func(node string)
	log     *slog.Logger
	trouble *trouble
	arrived chan *coordinationv1.Lease // nil: there is none

	// While it works:

	stop  context.CancelFunc
	ended chan struct{} // closed by work's end
	limit *time.Timer   // ends work, unless a renewal is taken
}

// run takes part until ctx ends.
func (l *elector) run(ctx context.Context) {
	defer l.retire(ctx)
	again := time.NewTimer(0)
	defer again.Stop()
	select { // what is not heard of yet is not to be created
	case lease := <-l.arrived:
		l.hear(lease)
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
			l.hear(lease)
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// hear takes note of a Lease, or that there is none.
func (l *elector) hear(lease *coordinationv1.Lease) {
	l.deleted = lease == nil && (l.lease != nil || l.deleted)
	l.lease, l.heard = lease, time.Now()
	l.heardOf(NodeOf(l.holder()))
}

// act does a step, and returns when to look again.
func (l *elector) act(ctx context.Context, do step) time.Time {
	if do == lose {
		l.resign("it could not be renewed, or another took it")
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
	if lost || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // the new holder is soon heard of
		l.trouble.note(ctx, "leases", nil)
	} else {
		l.trouble.note(ctx, "leases", err)
	}
	if lost {
		l.resign("another took it")
	}
	if err != nil {
		return time.Now().Add(leaseRetry)
	}
	l.hear(lease)
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

// extend has work go on, or begin, until the renewal that was just taken is old.
func (l *elector) extend(ctx context.Context) {
	left := time.Until(l.sent.Add(leaseWorks))
	if l.limit != nil && l.limit.Reset(left) {
		return
	}
	if l.limit != nil {
		l.resign("it was renewed too late") // what is the holder's is ours, though
		l.sent = time.Time{}
		return
	}
	if left <= 0 {
		l.sent = time.Time{} // the answer came too late
		return
	}
	l.log.Info("this process is the "+l.role+" now", "identity", l.me)
	working, stop := context.WithCancel(ctx)
	l.stop, l.ended, l.limit = stop, make(chan struct{}), time.AfterFunc(left, stop)
	go func() {
		defer close(l.ended)
		l.work(working)
	}()
}

// resign ends work, and waits until it has.
func (l *elector) resign(why string) {
	l.sent = time.Time{}
	if l.limit == nil {
		return
	}
	l.limit.Stop()
	l.stop()
	<-l.ended
	l.stop, l.ended, l.limit = nil, nil, nil
	l.log.Info("this process is no longer the "+l.role, "reason", why)
}

// retire ends work, and gives the Lease back.
func (l *elector) retire(ctx context.Context) {
	held := !l.sent.IsZero()
	l.resign("it is stopping")
	if !held {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenews)
	defer cancel()
	if err := l.leases.release(ctx, l.me); err != nil && !errors.Is(err, errLost) {
		l.log.Warn("cannot give the Lease back; another node takes it when it is over", "reason", explain("leases", err))
	}
}
