package fence

import (
	"context"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/ruleset"
)

const (
	// round is the time between two checks of the tables without a reported change.
	round = time.Second

	// pause is the minimum time between two checks after changes. It bounds the load that a program that keeps
	// changing nftables causes.
	pause = 100 * time.Millisecond
)

// Keep puts the tables back after other programs change them, until ctx is done. It checks them when
// the kernel reports a change, and every second.
//
// Putting the tables back may close addresses, so Keep then calls closed for the caller to open them again,
// also if another method put them back. It also calls closed before it checks a reported
// change, which may be its own.
func (f *Fence) Keep(ctx context.Context, closed func()) {
	changed := make(chan struct{}, 1)
	stop, err := f.kernel.Watch(changed)
	if err != nil {
		f.log.Warn("cannot watch nftables, only periodic checks find changes by other programs", "every", round, "err", err)
	} else {
		defer stop()
	}
	tick := time.NewTicker(round)
	defer tick.Stop()
	var fault ruleset.Fault
	var restored uint64
	busy := false // the last check followed a reported change
	for {
		fault.Log(f.log, f.Check(), "cannot check or put back the fence's tables", "the fence's tables are intact again")
		if now := f.timesRestored(); now != restored {
			restored = now
			closed()
		}
		if busy {
			wake.Pause(ctx, pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			busy = false
		case <-changed:
			closed() // an opening puts the tables back itself, without closing addresses in between
			busy = true
		}
	}
}
