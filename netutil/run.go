package netutil

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

const (
	// blind is how long a lost subscription is left alone: a flood of changes must
	// not become a flood of looks at everything.
	blind = 100 * time.Millisecond

	// Bind and Unbind wait for at most so many refreshes.
	refreshesInARow = 64
)

// Run refreshes what is bound and puts back what goes missing, until ctx is done. It
// returns nil then. It removes nothing: without Run addresses expire, so it should
// outlive the last Unbind. Run it once.
func (a *Addresses) Run(ctx context.Context) error {
	var sub listener
	defer a.rest()
	defer sub.stop()

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
			if err := a.subscribe(&sub); err != nil {
				a.deaf(err)
				subscribe.Reset(maxPause)
			}
		case n := <-sub.news:
			if n.err == nil {
				a.observe(n.events)
				continue
			}
			sub.stop()
			a.deaf(n.err)
			subscribe.Reset(blind)
		}
	}
}

// news is what a watcher reports.
type news struct {
	events []event
	err    error // the last
}

// listener makes a channel of a watcher. The zero value is silent.
type listener struct {
	news    chan news
	watcher watcher
	done    chan struct{}
	reader  sync.WaitGroup
}

func (l *listener) start(w watcher) {
	l.watcher, l.news, l.done = w, make(chan news), make(chan struct{})
	l.reader.Go(func() {
		for {
			events, err := w.next()
			select {
			case l.news <- news{events, err}:
			case <-l.done:
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// stop returns when nothing of it is left.
func (l *listener) stop() {
	if l.watcher == nil {
		return
	}
	close(l.done)
	l.watcher.close()
	l.reader.Wait()
	l.watcher, l.news = nil, nil
}

// subscribe listens first and looks at the host then, so that no change falls in
// between. Changes from before the look are told again; that does no harm, for in
// the end they say the same, and what they make settle do the kernel checks.
func (a *Addresses) subscribe(l *listener) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, err := a.kernel.watch()
	if err != nil {
		return fmt.Errorf("watch links and addresses: %w", err)
	}
	if err := a.resync(); err != nil {
		w.close()
		return err
	}
	l.start(w)
	a.live = true
	return nil
}

// deaf notes that changes go unheard for now.
func (a *Addresses) deaf(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = false
	if time.Since(a.deafAt) >= calm { // while they are lost again and again, once is enough
		a.log.Warn("changes of links and addresses went unheard, looking at all of them", "err", err)
	}
	a.deafAt = time.Now()
}

// rest ends what Run kept going. Bind and Unbind still work.
func (a *Addresses) rest() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = false
	a.retry.Stop()
	a.refresh.Stop()
	a.kernel.close()
}

// resync looks at the host and settles everything.
func (a *Addresses) resync() error {
	if err := a.look(); err != nil {
		return err
	}
	for w := range a.bindings() {
		_ = a.settle(w, false) // Status has it
	}
	return nil
}

// observe takes in changes.
func (a *Addresses) observe(events []event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		a.take(e)
	}
}

// take notes one change and settles what it concerns.
func (a *Addresses) take(e event) {
	var changed []string
	switch {
	case e.address != nil:
		if e.gone {
			a.view.drop(*e.address)
		} else {
			a.view.learn(*e.address)
		}
		for _, on := range a.wants {
			if w := on[e.address.ip]; w != nil {
				_ = a.settle(w, false)
			}
		}
	case e.gone:
		changed = a.view.dropLink(*e.link)
	default:
		changed = a.view.setLink(*e.link)
	}
	for _, name := range changed {
		for _, w := range a.wants[name] {
			_ = a.settle(w, false)
		}
	}
}

// interval is the time between two refreshes.
func (w *want) interval() time.Duration { return w.lifetime / 3 }

// refreshDue starts the lifetimes anew of what is due by now, and of what will be soon,
// so that they go together. If it comes late it looks first, so that what has
// expired meanwhile does not come back by itself.
func (a *Addresses) refreshDue(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh.clear()
	var due []*want
	overdue := false
	for w := range a.bindings() {
		if w.steady() && now.Sub(w.refreshed) > w.interval()/2 {
			due = append(due, w)
			overdue = overdue || a.overdue(w)
		}
	}
	if overdue || !a.live {
		_ = a.resync() // whatever fails that fails what follows too, and Status has that
	}
	for chunk := range slices.Chunk(due, refreshesInARow) {
		a.refreshSome(chunk)
		a.mu.Unlock() // lets Bind and Unbind in
		a.mu.Lock()
	}
	for w := range a.bindings() {
		if w.steady() {
			a.refresh.in(max(time.Until(w.refreshed.Add(w.interval())), minPause))
		}
	}
}

// steady is whether it is for refreshDue, and not for retryDue.
func (w *want) steady() bool { return w.bound && w.retryAt.IsZero() }

// bindings are all that are wanted.
func (a *Addresses) bindings() iter.Seq[*want] {
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

// refreshSome starts the lifetimes of some anew that were bound a moment ago.
func (a *Addresses) refreshSome(some []*want) {
	var wants []*want
	var addrs []address
	for _, w := range some {
		if step, _ := a.view.plan(w.Binding, a.opts.Mark); w.bound && step == keep && a.wants[w.Interface][w.Addr] == w {
			l, _ := a.view.byName(w.Interface)
			wants, addrs = append(wants, w), append(addrs, vip(l, w.Addr, w.lifetime, a.opts.Mark))
		}
	}
	asked := time.Now()
	if err := a.kernel.refresh(addrs...); err != nil {
		for _, w := range wants {
			_ = a.settle(w, true) // finds out which
		}
		return
	}
	for _, w := range wants {
		w.refreshed = asked
	}
}
