package address

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// reconcile makes the host match one want, and returns the reason if the address is not bound. With now
// it refreshes the address even if the view shows no difference, and skips pauses.
func (a *Binder) reconcile(w *want, now bool) error {
	step, err := a.plan(w.Binding)
	if step == leave {
		a.cancelRetry(w) // an event will reconcile it again
		a.setLost(w, err)
		return err
	}
	l, _ := a.view.byName(w.Interface)
	addr := vip(l, w.Addr, w.lifetime, a.opts.Mark)
	w.link = l.Index
	if step == create {
		return a.createAddress(w, addr, now)
	}
	if !now && !w.retryAt.IsZero() {
		return w.Err
	}
	changed := step == mend && w.Bound
	if changed && !now {
		if p := w.pause(); p > 0 {
			a.scheduleRetry(w, p)
			return nil
		}
	}
	if now || changed || !w.Bound {
		asked := time.Now()
		if err := a.kernel.Refresh(addr); err != nil {
			return a.noteFailure(w, err)
		}
		a.view.put(addr)
		w.refreshed = asked
		if changed {
			a.noteReturn(w, "another program changed it")
			w.created = asked
		}
	}
	a.setBound(w, err)
	return nil
}

func (a *Binder) createAddress(w *want, addr address, now bool) error {
	if !now && !w.Bound && !w.retryAt.IsZero() {
		return w.Err
	}
	if !now && w.Bound { // something removed it
		// The kernel reports the end of a link after the end of its addresses.
		if a.linkChanged(addr.Link) {
			return w.Err
		}
		if a.overdue(w) && w.failures == 0 { // this process was stopped: no refresh failed
			a.noteExpiry(w)
			return w.Err
		}
		if p := w.pause(); p > 0 {
			a.delayReturn(w, p)
			return w.Err
		}
	}
	asked := time.Now() // before the call: this process may stop during it
	err := a.kernel.Add(addr)
	if errors.Is(err, unix.EEXIST) {
		return a.rereadAddresses(w, now)
	}
	if err != nil {
		w.refreshed = time.Time{} // the kernel lacks the address
		return a.noteFailure(w, err)
	}
	a.view.put(addr)
	if w.had {
		a.noteReturn(w, "another program removed it")
	}
	w.refreshed, w.created = asked, asked
	a.setBound(w, nil)
	return nil
}

func (a *Binder) plan(b Binding) (step, error) {
	return a.view.plan(b, a.opts.Mark, func(link int) bool { return a.holds(b.Addr, link) })
}

// holds reports whether the last call or event left the address bound on the link.
func (a *Binder) holds(addr netip.Addr, link int) bool {
	w := a.wants[a.view.links[link].Name][addr]
	return w != nil && w.Bound && w.link == link
}

// pause counts a removal or change by another program, and returns the pause before putting the address back.
func (w *want) pause() time.Duration {
	if time.Since(w.created) >= calm {
		w.removals = 0
	}
	w.removals++
	return pauses.After(w.removals - 1)
}

// linkChanged reads one link. If the view differs, it updates the view, reconciles the wants of that link and
// returns true.
func (a *Binder) linkChanged(index int) bool {
	l, err := a.kernel.Link(index)
	e := event{Link: &l}
	if errors.Is(err, unix.ENODEV) {
		e = event{Gone: true, Link: &link{Index: index}}
	} else if err != nil || l.Equal(a.view.links[index]) {
		return false
	}
	a.applyEvent(e)
	return true
}

// rereadAddresses reads the addresses again: the kernel has an address that the view lacks, as its event has not
// arrived yet. It keeps the view's links: their events reconcile wants only if they change the view.
func (a *Binder) rereadAddresses(w *want, now bool) error {
	links, addrs, err := a.kernel.Dump()
	if err != nil {
		return a.noteFailure(w, err)
	}
	fresh := newView(links, addrs)
	a.view.places, a.view.marks = fresh.places, fresh.marks
	if step, _ := a.plan(w.Binding); step == create {
		return a.noteFailure(w, errors.New("the kernel reports the address as existing, but does not list it"))
	}
	return a.reconcile(w, now)
}

// delayReturn delays putting back an address that another program keeps removing.
func (a *Binder) delayReturn(w *want, p time.Duration) {
	err := fmt.Errorf("removed by another program %d times in a row, put back after %v: `ip monitor address` shows each removal", w.removals, p)
	if w.removals == 2 {
		a.log.Warn("another program keeps removing the VIP address, putting it back after longer pauses", "address", w.Addr, "link", w.Interface, "err", err)
	}
	a.scheduleRetry(w, p)
	a.setUnbound(w, err)
}

// grace is the time before putting back an address that expired while this process was stopped.
// The want may be outdated, so the caller gets time for Unbind, which it calls within
// milliseconds of noticing the stop. Bind puts the address back at once.
const grace = time.Second

// noteExpiry notes that an address expired, and schedules its return after the grace.
func (a *Binder) noteExpiry(w *want) {
	ago := time.Since(w.refreshed).Round(time.Millisecond)
	a.scheduleRetry(w, grace)
	a.setUnbound(w, fmt.Errorf("it expired while this process was stopped: last refresh %v ago", ago))
}

// noteReturn counts and logs that an address was put back, after the given event, or after the want's error if it
// was not bound.
func (a *Binder) noteReturn(w *want, after string) {
	w.Restored++
	if !w.Bound {
		after = w.Err.Error()
	}
	level := slog.LevelWarn
	if w.removals > 1 && time.Since(w.created) < calm { // delayReturn has logged it
		level = slog.LevelDebug
	}
	a.log.Log(context.Background(), level, "VIP address put back", "address", w.Addr, "link", w.Interface, "after", after)
	w.Err = nil
}

// overdue reports whether a refresh was missed, so that the address may have expired. The
// kernel counts in seconds and may be early.
func (a *Binder) overdue(w *want) bool {
	return time.Since(w.refreshed) > 2*w.interval()
}

// setBound notes that the kernel has the address; flaw is a foreign second copy, or nil.
func (a *Binder) setBound(w *want, flaw error) {
	switch {
	case !w.Bound && w.Err != nil: // without an error it is new, and Bind returns nil
		a.log.Info("VIP address bound", "address", w.Addr, "link", w.Interface, "after", w.Err)
	case flaw != nil && !sameError(flaw, w.Err):
		a.log.Warn("VIP address is on this host twice", "address", w.Addr, "link", w.Interface, "err", flaw)
	}
	w.Bound, w.had, w.failures, w.Err, w.Since = true, true, 0, flaw, time.Time{}
	a.cancelRetry(w)
	a.refresh.setWithin(time.Until(w.refreshed.Add(w.interval())))
}

// setLost notes and logs that the address is no longer bound.
func (a *Binder) setLost(w *want, err error) {
	if w.Bound {
		a.log.Warn("VIP address lost", "address", w.Addr, "link", w.Interface, "err", err)
	}
	a.setUnbound(w, err)
}

// setUnbound notes that the kernel does not have the address, or does not answer for it.
func (a *Binder) setUnbound(w *want, err error) {
	if w.Bound || w.Since.IsZero() {
		w.Since = time.Now()
	}
	w.Bound, w.Err = false, err
}

// noteFailure notes an error of the kernel, and schedules a retry. A bound address counts as bound
// until its lifetime has passed.
func (a *Binder) noteFailure(w *want, err error) error {
	err = explainError(w.Binding, err)
	w.failures++
	a.scheduleRetry(w, pauses.After(w.failures))
	if !w.Bound || time.Since(w.refreshed) >= w.lifetime {
		a.setLost(w, err)
		return err
	}
	if !sameError(err, w.Err) {
		a.log.Warn("VIP address not refreshed", "address", w.Addr, "link", w.Interface, "err", err)
		w.Err = err
	}
	return err
}

// scheduleRetry makes Run reconcile the want after d.
func (a *Binder) scheduleRetry(w *want, d time.Duration) {
	w.retryAt = time.Now().Add(d)
	a.waiting[w] = struct{}{}
	a.retry.setWithin(d)
}

func (a *Binder) cancelRetry(w *want) {
	w.retryAt = time.Time{}
	delete(a.waiting, w)
}

// retryDue reconciles the wants with a retryAt in the past.
func (a *Binder) retryDue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var due []*want
	a.retry.at = time.Time{}
	now := time.Now()
	for w := range a.waiting {
		if wait := w.retryAt.Sub(now); wait > 0 {
			a.scheduleRetry(w, wait)
		} else {
			due = append(due, w)
		}
	}
	if len(due) == 0 {
		return
	}
	err := a.ensureView()
	for _, w := range due {
		a.cancelRetry(w)
		if err == nil {
			_ = a.reconcile(w, true) // Status shows the error
		} else {
			_ = a.noteFailure(w, err)
		}
	}
}

func sameError(x, y error) bool {
	return x == nil && y == nil || x != nil && y != nil && x.Error() == y.Error()
}
