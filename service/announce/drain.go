package announce

import (
	"context"
	"errors"
	"fmt"
)

// Drain starts a planned withdrawal of every route; wait returns when it is
// complete. They stay withdrawn until [Announcer.Undrain], which makes a wait
// under way return an error. reason is for people. Addresses on a flat layer 2
// are drained by the speaker that has them.
func (a *Announcer) Drain(reason string) (wait func(context.Context) error) {
	a.event(func() {
		if a.drain.Begin(reason) {
			a.decideAll()
		}
		wait = a.drain.Wait()
	})
	return wait
}

// Undrain ends a drain: what is fit for it is announced again. After
// [Announcer.Stop] it does nothing.
func (a *Announcer) Undrain() {
	a.event(func() {
		if a.drain.End() {
			a.decideAll()
		}
	})
}

// Stop withdraws every route now, without the grace of a drain, and for good.
func (a *Announcer) Stop() error {
	a.event(func() {
		a.drain.Stop()
		a.decideAll()
		for _, d := range a.departures {
			a.leave(d.address)
			a.forgetAddress(d.address)
		}
		a.departures = nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for r := range a.failing {
		errs = append(errs, fmt.Errorf("withdraw %s: %w", r.prefix, r.err))
	}
	return errors.Join(errs...)
}
