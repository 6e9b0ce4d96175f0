package assign

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/service"
)

// mostWrites limits concurrent writes of Services' statuses.
const mostWrites = 16

// writer applies changes to a state and sends the resulting writes.
type writer struct {
	log      *slog.Logger
	api      API
	reporter string
	counts   *counts
	latest   func(key string) (*corev1.Service, bool)

	kick chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	state  *state
	writes int // pending

	failing atomic.Bool // the last write of a status failed
}

func newWriter(log *slog.Logger, api API, o Options, c *counts) *writer {
	return &writer{
		log: log, api: api, reporter: o.Identity, counts: c, state: newState(o), kick: make(chan struct{}, 1),
		latest: func(string) (*corev1.Service, bool) { return nil, false },
	}
}

// change applies f to the state and wakes the writer.
func (d *writer) change(f func(*state)) {
	d.mu.Lock()
	f(d.state)
	d.mu.Unlock()
	wake.Up(d.kick)
}

// run works until ctx ends. It begins with the objects that the state has received so far.
func (d *writer) run(ctx context.Context) {
	defer d.wg.Wait()
	wake.Loop(ctx, d.kick, func() time.Time { return d.reconcile(ctx, time.Now()) })
}

// reconcile decides all changed Services, starts the writes that are due, and returns when
// to run again without an event; zero means never.
func (d *writer) reconcile(ctx context.Context, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	reports := d.state.applyReports(now)
	d.state.assign()
	portions := d.state.portions(now)
	writes, next := d.state.due(now, mostWrites-d.writes)
	for _, w := range writes {
		d.writes++
		d.wg.Go(func() { d.write(ctx, &w) })
	}
	poolWrites, nextPools := d.state.duePools(now)
	for _, w := range poolWrites {
		d.wg.Go(func() { d.writePool(ctx, w) })
	}
	return wake.Earlier(wake.Earlier(next, nextPools), wake.Earlier(reports, portions))
}

// write writes the status of a Service, then logs it and sends the events.
func (d *writer) write(ctx context.Context, w *write) {
	d.counts.serviceWrites.Add(1)
	written, err := d.api.WriteServiceStatus(ctx, w.read, w.status)
	switch {
	case err == nil:
		d.failing.Store(false)
		if w.assigns {
			d.counts.assignments.Add(1)
		}
		if w.refusal != "" {
			d.counts.refusals.Add(1)
		}
		d.report(ctx, w)
	case ctx.Err() == nil:
		d.fail(err)
	}
	d.change(func(st *state) {
		d.writes--
		// Read under the lock, so that it is not older than the last version that the state received.
		latest, _ := d.latest(w.key)
		st.done(w, err, written, latest, time.Now())
	})
}

// report logs the result for a Service and sends its events.
func (d *writer) report(ctx context.Context, w *write) {
	about := append([]any{"service", w.key}, service.OriginOf(w.read).Attrs()...)
	if w.refusal != "" {
		d.log.Warn("Service lacks a requested address", append(about, "reason", w.refusal)...)
	}
	if w.assigns {
		var addrs []string
		for _, i := range w.status.LoadBalancer.Ingress {
			addrs = append(addrs, i.IP)
		}
		d.log.Info("Service has addresses", append(about, "addresses", addrs)...)
	}
	for _, e := range w.events {
		e.Reporter = d.reporter
		d.counts.eventWrites.Add(1)
		if err := d.api.WriteEvent(ctx, e); err != nil && ctx.Err() == nil {
			d.counts.failures.Add(1) // not retried: the condition has the same content
		}
	}
}

func (d *writer) writePool(ctx context.Context, w poolWrite) {
	d.counts.poolWrites.Add(1)
	err := d.api.WriteStatus(ctx, w.read, w.status)
	if err != nil && ctx.Err() == nil {
		d.fail(err)
	}
	d.change(func(st *state) { st.donePool(w.read.Name, err, time.Now()) })
}

// fail counts a failed write, and logs the first one after a success.
func (d *writer) fail(err error) {
	d.counts.failures.Add(1)
	if !outdated(err) && !d.failing.Swap(true) {
		d.log.Warn("cannot write addresses to the Kubernetes API; retrying", "reason", err)
	}
}

// outdated reports whether a write failed because its object has changed or is deleted.
func outdated(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
