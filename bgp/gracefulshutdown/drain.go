// Package gracefulshutdown is how what is announced leaves on purpose: who is told of it, for how long, and
// when it has left. It is for VIPs and for Services.
package gracefulshutdown

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Notice is how long a route is marked as going (RFC 8326) before it is
// withdrawn in a planned change: several times what a router takes to act.
const Notice = 500 * time.Millisecond

// Drain is whether everything is withdrawn on purpose. The zero value is not; the mutex of its
// owner guards it.
type Drain struct {
	reason string
	idle   chan struct{} // closed when the drain is complete, nil from then on
	undone chan struct{} // closed when it is ended; nil if it cannot be
}

// Reason is why everything is withdrawn; empty if it is not.
func (d *Drain) Reason() string { return d.reason }

// Begin begins a drain, if there is none yet, and reports whether it did.
func (d *Drain) Begin(reason string) bool {
	if d.reason != "" {
		return false
	}
	*d = Drain{reason: reason, idle: make(chan struct{}), undone: make(chan struct{})}
	return true
}

// Complete says that everything is withdrawn, which ends the waiting.
func (d *Drain) Complete() {
	if d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// End ends a drain, and reports whether there was one that can be ended.
func (d *Drain) End() bool {
	if d.undone == nil {
		return false
	}
	close(d.undone)
	*d = Drain{}
	return true
}

// Stop begins a drain that cannot be ended.
func (d *Drain) Stop() { d.reason, d.undone = "stopped", nil }

// Wait returns what waits until the drain is complete, to be called without the mutex.
func (d *Drain) Wait() func(context.Context) error {
	idle, undone := d.idle, d.undone
	return func(ctx context.Context) error {
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
}
