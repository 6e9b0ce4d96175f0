package netutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// settle brings one want in line with the host and returns why it is not bound.
// With now it asks the kernel even if all seems well, and waits out no pause.
func (a *Addresses) settle(w *want, now bool) error {
	step, err := a.view.plan(w.Binding, a.opts.Mark)
	if step == leave {
		a.relax(w) // it is an event that will change that
		a.lost(w, err)
		return err
	}
	l, _ := a.view.byName(w.Interface)
	addr := vip(l, w.Addr, w.lifetime, a.opts.Mark)
	w.link = l.index
	if step == create {
		return a.create(w, addr, now)
	}
	if !now && !w.retryAt.IsZero() {
		return w.err
	}
	if now || !w.bound {
		asked := time.Now()
		if err := a.kernel.refresh(addr); err != nil {
			return a.failed(w, err)
		}
		a.view.put(addr)
		w.refreshed = asked
	}
	a.bound(w, err)
	return nil
}

func (a *Addresses) create(w *want, addr address, now bool) error {
	if !now && !w.bound && !w.retryAt.IsZero() {
		return w.err
	}
	if !now && w.bound { // it was taken away
		// A link that goes down or away says so only after its addresses have.
		if a.linkChanged(addr.link) {
			return w.err
		}
		if a.overdue(w) && w.failures == 0 { // not for want of trying
			a.expired(w)
			return w.err
		}
		if time.Since(w.created) >= calm {
			w.removals = 0
		}
		w.removals++
		if p := pause(w.removals - 1); p > 0 {
			a.resist(w, p)
			return w.err
		}
	}
	asked := time.Now() // by the time of the answer this process may have stood still
	err := a.kernel.add(addr)
	if errors.Is(err, unix.EEXIST) {
		return a.surprised(w, now)
	}
	if err != nil {
		w.refreshed = time.Time{} // nothing left to refresh
		return a.failed(w, err)
	}
	a.view.put(addr)
	if w.had {
		a.restored(w)
	}
	w.refreshed, w.created = asked, asked
	a.bound(w, nil)
	return nil
}

// linkChanged asks the kernel about one link; if the view is behind, it and all
// wants there are settled.
func (a *Addresses) linkChanged(index int) bool {
	l, err := a.kernel.link(index)
	e := event{link: &l}
	if errors.Is(err, unix.ENODEV) {
		e = event{gone: true, link: &link{index: index}}
	} else if err != nil || l == a.view.links[index] {
		return false
	}
	a.take(e)
	return true
}

// surprised looks at the addresses again: the kernel has one that the view lacks,
// which is the past by some microseconds. Links are left to their events, which
// settle what they concern only if they tell news.
func (a *Addresses) surprised(w *want, now bool) error {
	links, addrs, err := a.kernel.dump()
	if err != nil {
		return a.failed(w, err)
	}
	fresh := newView(links, addrs)
	a.view.places, a.view.marks = fresh.places, fresh.marks
	if step, _ := a.view.plan(w.Binding, a.opts.Mark); step == create {
		return a.failed(w, errors.New("it comes and goes"))
	}
	return a.settle(w, now)
}

// resist leaves an address alone for a while that somebody removes again and again.
func (a *Addresses) resist(w *want, p time.Duration) {
	err := fmt.Errorf("removed by somebody else %d times in a row, to be put back after %v: `ip monitor address` shows when it goes", w.removals, p)
	if w.removals == 2 {
		a.log.Warn("VIP address keeps being removed, putting it back ever more slowly", "address", w.Addr, "interface", w.Interface, "err", err)
	}
	a.retryIn(w, p)
	a.unbound(w, err)
}

// grace is how long an address stays away that expired because this process stood
// still. Whether it is to return is not for this package to say: what wanted it is as
// old as the pause. So there is time for Unbind, which a caller who notices the pause
// calls within milliseconds. Bind puts it back at once.
const grace = time.Second

// expired leaves to the caller, for the grace, what the kernel took away.
func (a *Addresses) expired(w *want) {
	ago := time.Since(w.refreshed).Round(time.Millisecond)
	a.retryIn(w, grace)
	a.unbound(w, fmt.Errorf("it expired, for this process stood still: it was last refreshed %v ago", ago))
}

// restored counts and tells that an address was missing and is there again.
func (a *Addresses) restored(w *want) {
	w.restored++
	after := "somebody removed it"
	if !w.bound {
		after = w.err.Error()
	}
	level := slog.LevelWarn
	if w.removals > 1 && time.Since(w.created) < calm { // told by resist
		level = slog.LevelDebug
	}
	a.log.Log(context.Background(), level, "VIP address put back", "address", w.Addr, "interface", w.Interface, "after", after)
	w.err = nil
	a.notify()
}

// overdue is whether a refresh was missed, so that the address may have expired: the
// kernel counts in seconds and may be early.
func (a *Addresses) overdue(w *want) bool {
	return time.Since(w.refreshed) > 2*w.interval()
}

// bound notes that the kernel has the address; flaw is what is wrong nevertheless.
func (a *Addresses) bound(w *want, flaw error) {
	switch {
	case !w.bound && w.err != nil: // else it is new, and Bind says so
		a.log.Info("VIP address bound", "address", w.Addr, "interface", w.Interface, "after", w.err)
	case flaw != nil && !same(flaw, w.err):
		a.log.Warn("VIP address is on this host twice", "address", w.Addr, "interface", w.Interface, "err", flaw)
	}
	if !w.bound {
		w.since = time.Now()
	}
	if !w.bound || !same(flaw, w.err) {
		a.notify()
	}
	w.bound, w.had, w.failures, w.err = true, true, 0, flaw
	a.relax(w)
	a.refresh.in(time.Until(w.refreshed.Add(w.interval())))
}

// lost tells that the address is not bound any more.
func (a *Addresses) lost(w *want, err error) {
	if w.bound {
		a.log.Warn("VIP address lost", "address", w.Addr, "interface", w.Interface, "err", err)
	}
	a.unbound(w, err)
}

// unbound notes that the kernel does not have the address, or does not answer for it.
func (a *Addresses) unbound(w *want, err error) {
	if w.bound {
		w.since = time.Now()
	}
	if w.bound || !same(err, w.err) {
		a.notify()
	}
	w.bound, w.err = false, err
}

// failed notes that the kernel refused, and tries again later. What is bound stays
// so until it would have expired.
func (a *Addresses) failed(w *want, err error) error {
	err = explain(w.Binding, err)
	w.failures++
	a.retryIn(w, pause(w.failures))
	if !w.bound || time.Since(w.refreshed) >= w.lifetime {
		a.lost(w, err)
		return err
	}
	if !same(err, w.err) {
		a.log.Warn("VIP address not refreshed", "address", w.Addr, "interface", w.Interface, "err", err)
		w.err = err
		a.notify()
	}
	return err
}

// retryIn has Run settle the want after a while.
func (a *Addresses) retryIn(w *want, d time.Duration) {
	w.retryAt = time.Now().Add(d)
	a.waiting[w] = struct{}{}
	a.retry.in(d)
}

func (a *Addresses) relax(w *want) {
	w.retryAt = time.Time{}
	delete(a.waiting, w)
}

// retryDue settles those whose time has come.
func (a *Addresses) retryDue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var due []*want
	a.retry.clear()
	now := time.Now()
	for w := range a.waiting {
		if wait := w.retryAt.Sub(now); wait > 0 {
			a.retryIn(w, wait)
		} else {
			due = append(due, w)
		}
	}
	if len(due) == 0 {
		return
	}
	err := a.upToDate()
	for _, w := range due {
		a.relax(w)
		if err == nil {
			_ = a.settle(w, true) // Status has it
		} else {
			_ = a.failed(w, err)
		}
	}
}

func (a *Addresses) notify() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func same(x, y error) bool {
	return x == nil && y == nil || x != nil && y != nil && x.Error() == y.Error()
}
