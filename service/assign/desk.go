package assign

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// mostWrites is how many requests are under way at once.
const mostWrites = 16

// desk is where a ledger is kept: it hears of changes and has things written.
type desk struct {
	log      *slog.Logger
	api      API
	reporter string
	counts   *counts
	latest   func(key string) (*corev1.Service, bool)

	kick chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	ledger *ledger
	writes int // under way

	failing atomic.Bool // the last write of a status was not taken
}

func newDesk(log *slog.Logger, api API, o Options, c *counts) *desk {
	return &desk{
		log: log, api: api, reporter: o.Identity, counts: c, ledger: newLedger(o), kick: make(chan struct{}, 1),
		latest: func(string) (*corev1.Service, bool) { return nil, false },
	}
}

// change does something to the ledger, and has the desk look at it.
func (d *desk) change(f func(*ledger)) {
	d.mu.Lock()
	f(d.ledger)
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// run works until ctx ends. It begins with what the ledger has been told so far.
func (d *desk) run(ctx context.Context) {
	defer d.wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := d.look(ctx, time.Now())
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-d.kick:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// look decides what is to be decided, begins what is to be written, and returns
// when to look again if nothing happens; zero: not before something does.
func (d *desk) look(ctx context.Context, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.settle()
	writes, next := d.ledger.due(now, mostWrites-d.writes)
	for _, w := range writes {
		d.writes++
		d.wg.Go(func() { d.write(ctx, &w) })
	}
	poolWrites, nextPools := d.ledger.duePools(now)
	for _, w := range poolWrites {
		d.wg.Go(func() { d.writePool(ctx, w) })
	}
	if next.IsZero() || !nextPools.IsZero() && nextPools.Before(next) {
		next = nextPools
	}
	return next
}

// write writes the status of a Service, and tells of it.
func (d *desk) write(ctx context.Context, w *write) {
	d.counts.serviceWrites.Add(1)
	is, err := d.api.WriteServiceStatus(ctx, w.read, w.status)
	o := outcomeOf(err)
	switch {
	case o == taken:
		d.failing.Store(false)
		if w.assigns {
			d.counts.assignments.Add(1)
		}
		if w.refuses {
			d.counts.refusals.Add(1)
		}
		d.tell(ctx, w)
	case ctx.Err() == nil:
		d.counts.failures.Add(1)
		d.complain(o, err)
	}
	d.change(func(l *ledger) {
		d.writes--
		// Asked for here, so that it is no older than what the ledger was told last.
		latest, _ := d.latest(w.key)
		l.done(w, o, is, latest, time.Now())
	})
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return taken
	case apierrors.IsNotFound(err):
		return gone
	case apierrors.IsConflict(err):
		return outdated
	}
	return failed
}

// tell logs what became of a Service, and has the server keep the events about it.
func (d *desk) tell(ctx context.Context, w *write) {
	if w.refuses {
		d.log.Warn("a Service has not got what it asks for", "service", w.key, "reason", w.condition.Message)
	}
	if w.assigns {
		var addrs []string
		for _, i := range w.status.LoadBalancer.Ingress {
			addrs = append(addrs, i.IP)
		}
		d.log.Info("a Service has addresses", "service", w.key, "addresses", addrs)
	}
	for _, e := range w.events {
		e.Reporter = d.reporter
		d.counts.eventWrites.Add(1)
		if err := d.api.WriteEvent(ctx, e); err != nil && ctx.Err() == nil {
			d.counts.failures.Add(1) // the condition says the same
		}
	}
}

func (d *desk) writePool(ctx context.Context, w poolWrite) {
	d.counts.poolWrites.Add(1)
	err := d.api.WritePoolStatus(ctx, w.read, w.status)
	o := outcomeOf(err)
	if o != taken && ctx.Err() == nil {
		d.counts.failures.Add(1)
		d.complain(o, err)
	}
	d.change(func(l *ledger) { l.donePool(w.read.Name, o, time.Now()) })
}

// complain logs that the server takes no status, once until it takes some.
func (d *desk) complain(o outcome, err error) {
	if o == failed && !d.failing.Swap(true) {
		d.log.Warn("cannot tell the Kubernetes API of addresses; trying again", "reason", err)
	}
}
