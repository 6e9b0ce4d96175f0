package announce

import (
	"context"
	"errors"
	"fmt"
)

// Drain starts a graceful withdrawal of every route; wait returns when it is
// complete. The routes stay withdrawn until [Announcer.Undrain], which makes a pending
// wait return an error. reason is shown to users. The speaker drains addresses on a
// flat layer 2.
func (a *Announcer) Drain(reason string) (wait func(context.Context) error) {
	a.event(func() {
		if a.drain.Begin(reason) {
			a.decideAll()
		}
		wait = a.drain.Wait()
	})
	return wait
}

// Undrain ends a drain: eligible addresses are announced again. After [Announcer.Stop]
// it does nothing.
func (a *Announcer) Undrain() {
	a.event(func() {
		if a.drain.End() {
			a.decideAll()
		}
	})
}

// Stop withdraws every route at once and for good. The error names the routes that could not be withdrawn.
func (a *Announcer) Stop() error {
	a.event(func() {
		a.drain.Stop()
		a.decideAll()
		for _, d := range a.deadlines {
			a.withdraw(d.address)
			a.forgetAddress(d.address)
		}
		a.deadlines = nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for r := range a.failing {
		errs = append(errs, fmt.Errorf("withdraw %s: %w", r.prefix, r.err))
	}
	return errors.Join(errs...)
}
