package fence

import (
	"context"
	"time"
)

const (
	// round is how often Keep looks whether the tables are complete, whatever the kernel tells.
	round = time.Second

	// pause is the least time between two looks, lest somebody who changes nftables over
	// and over keep the node busy.
	pause = 100 * time.Millisecond
)

// Keep puts back what somebody else removes of the tables, until ctx is done: as soon as
// the kernel tells of it, and otherwise when it looks, every second. Each time that the
// tables were put back, by Keep or by any other method, everything was closed by that:
// then it calls closed, so that what should be open is opened again, and likewise when it
// is told of a change, which may be its own.
func (f *Fence) Keep(ctx context.Context, closed func()) {
	told := make(chan struct{}, 1)
	stop, err := f.kernel.watch(told)
	if err != nil {
		f.log.Warn("what somebody else changes of nftables is found by looking only", "every", round, "err", err)
	} else {
		defer stop()
	}
	tick := time.NewTicker(round)
	defer tick.Stop()
	var last look
	for {
		if last = f.look(last); last.news {
			closed()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-told:
			closed() // an opening puts the tables back itself, and nothing is closed in between
		}
	}
}

// look is what Keep found out.
type look struct {
	restored uint64
	news     bool   // it is more than at the look before
	trouble  string // what keeps the tables from being put back, empty if nothing does
}

// look looks at the tables, and logs what is not as it was the last time.
func (f *Fence) look(last look) look {
	var now look
	err := f.Check()
	if err != nil {
		now.trouble = err.Error()
	}
	switch {
	case now.trouble == last.trouble:
	case err != nil:
		f.log.Error("fence not put back", "err", err)
	default:
		f.log.Info("fence in order again")
	}
	now.restored = f.Status().Restored
	now.news = now.restored != last.restored
	return now
}
