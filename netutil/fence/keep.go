package fence

import (
	"context"
	"time"
)

// round is how often Keep looks whether the tables are complete.
const round = time.Second

// Keep puts back what somebody else removes of the tables, until ctx is done. Each time
// that the tables were put back, by Keep or by any other method, everything was closed
// by that: then it calls closed, so that what should be open is opened again.
func (f *Fence) Keep(ctx context.Context, closed func()) {
	tick := time.NewTicker(round)
	defer tick.Stop()
	var restored uint64
	var trouble string // the last that was logged
	for {
		err := f.Check()
		switch {
		case err != nil && err.Error() != trouble:
			trouble = err.Error()
			f.log.Error("fence not put back", "err", err)
		case err == nil && trouble != "":
			trouble = ""
			f.log.Info("fence in order again")
		}
		if now := f.Status().Restored; now != restored {
			restored = now
			closed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
