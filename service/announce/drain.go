package announce

import (
	"context"
	"errors"
	"fmt"
)

// Drain starts a planned withdrawal of every route and returns when it is
// complete. They stay withdrawn until [Announcer.Undrain], which makes a Drain
// under way return an error. reason is for people. Addresses on a flat layer 2
// are drained by the speaker that has them.
func (a *Announcer) Drain(ctx context.Context, reason string) error {
	var idle, undone chan struct{}
	a.event(func() {
		if a.draining == "" {
			a.draining = reason
			a.idle, a.undone = make(chan struct{}), make(chan struct{})
			a.decideAll()
		}
		idle, undone = a.idle, a.undone
	})
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-undone:
		return errors.New("drain: ended by undrain before it was complete")
	case <-ctx.Done():
		return fmt.Errorf("drain: %w", ctx.Err())
	}
}

// Undrain ends a drain: what is fit for it is announced again. After
// [Announcer.Stop] it does nothing.
func (a *Announcer) Undrain() {
	a.event(func() {
		if a.undone == nil {
			return
		}
		close(a.undone)
		a.draining, a.idle, a.undone = "", nil, nil
		a.decideAll()
	})
}

// Stop withdraws every route now, without the grace of a drain, and for good.
func (a *Announcer) Stop() error {
	a.event(func() {
		a.draining, a.undone = "stopped", nil
		a.decideAll()
		for _, d := range a.departures {
			a.leave(d.address)
			a.settle(d.address)
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
