package fence

import (
	"context"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/ruleset"
)

const (
	// round is the time between two checks of the tables if the kernel reports no change.
	round = time.Second

	// pause is the least time between a check for a change and the next, so that a program that changes
	// nftables over and over does not keep the node busy.
	pause = 100 * time.Millisecond
)

// Keep puts back what another program removes of the tables, until ctx is done: as soon as
// the kernel reports the change, and else at a check every second. It calls closed, so that
// the caller opens again what should be open, each time that the tables were put back, by
// Keep or by any other method, as that closes everything; and when the kernel reports a
// change, which may be Keep's own.
func (f *Fence) Keep(ctx context.Context, closed func()) {
	changed := make(chan struct{}, 1)
	stop, err := f.kernel.Watch(changed)
	if err != nil {
		f.log.Warn("cannot watch nftables, only periodic checks find what other programs change", "every", round, "err", err)
	} else {
		defer stop()
	}
	tick := time.NewTicker(round)
	defer tick.Stop()
	var fault ruleset.Fault
	var restored uint64
	busy := false // the last check was for a change
	for {
		fault.Log(f.log, f.Check(), "fence not put back", "fence in order again")
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
			closed() // an opening puts the tables back itself, and nothing is closed in between
			busy = true
		}
	}
}
