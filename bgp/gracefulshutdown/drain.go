// Package gracefulshutdown withdraws routes of VIPs and Services without loss (RFC 8326): it tracks which peers still get
// a route marked as draining, and drains of the whole node.
package gracefulshutdown

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Notice is how long a route is marked as draining (RFC 8326) before a planned withdrawal: several times the reaction
// time of a router.
const Notice = 500 * time.Millisecond

// Drain is the withdrawal of everything on purpose. The zero value is no drain. The mutex of its owner guards it.
type Drain struct {
	reason string
	idle   chan struct{} // closed when the drain is complete, nil from then on
	undone chan struct{} // closed when the drain ends; nil if it cannot end
}

// Reason returns the reason of the drain; empty without one.
func (d *Drain) Reason() string { return d.reason }

// Begin starts a drain unless there is one, and reports whether it did.
func (d *Drain) Begin(reason string) bool {
	if d.reason != "" {
		return false
	}
	*d = Drain{reason: reason, idle: make(chan struct{}), undone: make(chan struct{})}
	return true
}

// Complete ends the waiting: everything is withdrawn.
func (d *Drain) Complete() {
	if d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// End ends a drain, and reports whether it did: it does nothing without a drain or after Stop.
func (d *Drain) End() bool {
	if d.undone == nil {
		return false
	}
	close(d.undone)
	*d = Drain{}
	return true
}

// Stop starts a drain that cannot end.
func (d *Drain) Stop() { d.reason, d.undone = "stopped", nil }

// Wait returns a function that waits until the drain is complete. Call that function without the mutex.
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
