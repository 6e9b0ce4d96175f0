package address

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/herald-vip/herald/netutil/rtnetlink"
)

// refreshBatch bounds the refreshes that Bind and Unbind wait for.
const refreshBatch = 64

// Run refreshes bound addresses and puts missing ones back, until ctx is done; then it returns nil. It removes nothing.
// Without Run addresses expire, so it should outlive the last Unbind. Call it once.
func (a *Binder) Run(ctx context.Context) error {
	defer a.endRun()
	var sub watcher
	var changed <-chan struct{} // sub's; nil while there is none
	defer func() {
		if changed != nil {
			sub.Close()
		}
	}()

	subscribe := time.NewTimer(0)
	defer subscribe.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-a.refresh.C:
			a.refreshDue(now)
		case <-a.retry.C:
			a.retryDue()
		case <-subscribe.C:
			var err error
			if sub, err = a.subscribe(); err != nil {
				a.noteLoss(err)
				subscribe.Reset(maxPause)
				continue
			}
			changed = sub.Ready()
		case <-changed:
			events, err := sub.Take()
			if err == nil {
				a.applyEvents(events)
				continue
			}
			sub.Close()
			changed = nil
			a.noteLoss(err)
			subscribe.Reset(rtnetlink.Pause)
		}
	}
}

// subscribe subscribes and then reads the host, so that no change is missed. Changes from before the
// reading arrive again. That is harmless: the last event about an address agrees with the reading, and
// the kernel rejects wrong steps of reconcile until then.
func (a *Binder) subscribe() (watcher, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, err := a.kernel.Watch()
	if err != nil {
		return nil, fmt.Errorf("watch links and addresses: %w", err)
	}
	if err := a.reconcileAll(); err != nil {
		w.Close()
		return nil, err
	}
	a.live = true
	return w, nil
}

// noteLoss notes lost changes. Until the next subscription Bind and Unbind read the host.
func (a *Binder) noteLoss(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = false
	if time.Since(a.lossAt) >= calm { // logs a series of losses once
		a.log.Warn("changes of links and addresses were lost, reading all of them", "err", err)
	}
	a.lossAt = time.Now()
}

// endRun stops the timers and closes the socket. Bind and Unbind still work.
func (a *Binder) endRun() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = false
	a.retry.Stop()
	a.refresh.Stop()
	a.kernel.Close()
}

// reconcileAll reads the host and reconciles every want with it.
func (a *Binder) reconcileAll() error {
	if err := a.readHost(); err != nil {
		return err
	}
	for w := range a.bindings() {
		_ = a.reconcile(w, false) // Status shows the error
	}
	for addr := range a.reserved {
		a.checkReserved(addr)
	}
	return nil
}

// applyEvents updates the view and reconciles the wants that the events concern.
func (a *Binder) applyEvents(events []event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		a.applyEvent(e)
	}
}

func (a *Binder) applyEvent(e event) {
	var changed []string
	switch {
	case e.Address != nil:
		if e.Gone {
			a.view.drop(*e.Address)
		} else {
			a.view.addReported(*e.Address)
		}
		for _, on := range a.wants {
			if w := on[e.Address.IP]; w != nil {
				_ = a.reconcile(w, false)
			}
		}
		a.checkReserved(e.Address.IP)
	case e.Link == nil:
	case e.Gone:
		changed = a.view.dropLink(*e.Link)
	default:
		changed = a.view.setLink(*e.Link)
	}
	for _, name := range changed {
		for _, w := range a.wants[name] {
			_ = a.reconcile(w, false)
		}
	}
}

func (w *want) interval() time.Duration { return w.lifetime / 3 }

// refreshDue refreshes every binding with a refresh due now or soon, so that refreshes share batches. If it is
// late it reads the host first, so as not to bring back expired addresses.
func (a *Binder) refreshDue(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh.at = time.Time{}
	var due []*want
	overdue := false
	for w := range a.bindings() {
		if w.steady() && now.Sub(w.refreshed) > w.interval()/2 {
			due = append(due, w)
			overdue = overdue || a.overdue(w)
		}
	}
	if overdue || !a.live {
		_ = a.reconcileAll() // if it fails, so do the refreshes, and Status shows that
	}
	for chunk := range slices.Chunk(due, refreshBatch) {
		a.refreshChunk(chunk)
		a.mu.Unlock() // lets Bind and Unbind run
		a.mu.Lock()
	}
	for w := range a.bindings() {
		if w.steady() {
			a.refresh.setWithin(max(time.Until(w.refreshed.Add(w.interval())), minPause))
		}
	}
}

// steady reports whether refreshDue handles the want; otherwise retryDue does.
func (w *want) steady() bool { return w.Bound && w.retryAt.IsZero() }

// bindings yields every want.
func (a *Binder) bindings() iter.Seq[*want] {
	return func(yield func(*want) bool) {
		for _, on := range a.wants {
			for _, w := range on {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// refreshChunk refreshes the wants that are still bound.
func (a *Binder) refreshChunk(some []*want) {
	var wants []*want
	var addrs []address
	for _, w := range some {
		if step, _ := a.plan(w.Binding); w.Bound && step == keep && a.wants[w.Interface][w.Addr] == w {
			l, _ := a.view.byName(w.Interface)
			wants, addrs = append(wants, w), append(addrs, vip(l, w.Addr, w.lifetime, a.opts.Mark))
		}
	}
	asked := time.Now()
	if err := a.kernel.Refresh(addrs...); err != nil {
		for _, w := range wants {
			_ = a.reconcile(w, true) // finds out which one fails
		}
		return
	}
	for _, w := range wants {
		w.refreshed = asked
	}
}

// alarm is a timer for the earliest of several times.
type alarm struct {
	*time.Timer
	at time.Time // zero for never, and after it has fired
}

func newAlarm() alarm {
	t := time.NewTimer(0)
	t.Stop()
	return alarm{Timer: t}
}

// setWithin makes the alarm fire in d at the latest.
func (a *alarm) setWithin(d time.Duration) {
	if at := time.Now().Add(d); a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.Reset(d)
	}
}

// kernel is implemented by [host]. Calls do not overlap.
type kernel interface {
	Dump() ([]link, []address, error)
	Link(index int) (link, error)
	Add(address) error
	Refresh(...address) error
	Remove(...address) error
	// Watch subscribes to changes. It need not report the caller's own Add and Refresh.
	Watch() (watcher, error)
	Close()
}

// watcher is a subscription. After an error it has lost changes and cannot be used.
type watcher interface {
	// Ready receives when Take has changes or an error.
	Ready() <-chan struct{}
	// Take returns the changes since the last call.
	Take() ([]event, error)
	Close()
}

// host is the running kernel.
type host struct {
	*rtnetlink.Conn
	watcher *rtnetlink.Watcher
}

// Watch implements kernel.
func (h host) Watch() (watcher, error) { return h.watcher.Subscribe() }
