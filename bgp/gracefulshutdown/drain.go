// Package gracefulshutdown withdraws routes of VIPs and Services without loss (RFC 8326): it tracks which peers still get
// a route marked as draining, and drains of the whole node.
package gracefulshutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
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

// Stage is how far the announcement of an address has come.
type Stage string

const (
	// Withdrawn: no route, no address.
	Withdrawn Stage = "withdrawn"
	// Announced: address bound, route advertised; on a flat layer 2 the kernel answers for it.
	Announced Stage = "announced"
	// Draining: as Announced, with the route marked by GRACEFUL_SHUTDOWN.
	Draining Stage = "draining"
	// Lingering: route withdrawn, or lease handed over, and the address still bound for packets on their way.
	Lingering Stage = "lingering"
	// Demoted: the checks fail, and the VIP stays as the last resort: address bound, route marked as the worst.
	Demoted Stage = "demoted"
)

// Bound reports whether the address is on its link in this stage.
func (s Stage) Bound() bool { return s != Withdrawn && s != "" }

// Advertised reports whether peers have the route in this stage.
func (s Stage) Advertised() bool { return s == Announced || s.Marked() }

// Marked reports whether the route asks peers to prefer any other in this stage.
func (s Stage) Marked() bool { return s == Draining || s == Demoted }

// Advertised is the peers that a route is advertised to: the wanted peers, and further peers that keep it, marked as
// draining, for [Notice] after it moved away from them. It is a value.
type Advertised struct {
	Peers    []string // nil means all
	draining []stalePath
}

// stalePath is a peer that keeps a draining route until at.
type stalePath struct {
	peer string
	at   time.Time
}

// Next returns the state after a change of the wanted peers to want; nil means all. New peers get the route at once.
// Others keep it for [Notice], marked as draining, so that they move traffic away before the withdrawal. all names
// every configured peer. again is the time of the next change without a new call; zero means never.
func (a Advertised) Next(now time.Time, want, all []string) (next Advertised, again time.Time) {
	wanted := func(peer string) bool { return want == nil || slices.Contains(want, peer) }
	next.Peers = want
	for _, p := range a.draining {
		if now.Before(p.at) && !wanted(p.peer) && slices.Contains(all, p.peer) {
			next.draining = append(next.draining, p)
		}
	}
	had := a.Peers
	if had == nil {
		had = all
	}
	for _, peer := range had {
		if !wanted(peer) && slices.Contains(all, peer) { // a deleted peer needs no notice
			next.draining = append(next.draining, stalePath{peer, now.Add(Notice)})
		}
	}
	for _, p := range next.draining {
		again = wake.Earlier(again, p.at)
	}
	return next, again
}

// Draining returns the peers that get the route marked as draining, sorted; nil if there are none.
func (a Advertised) Draining() []string {
	var out []string
	for _, p := range a.draining {
		out = append(out, p.peer)
	}
	slices.Sort(out)
	return out
}
