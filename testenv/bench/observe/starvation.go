package observe

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	tick = 2 * time.Millisecond
	// tooLate is how late a ticker may come, and tooMuchSteal how much time of the CPUs
	// may be stolen, while something is measured.
	tooLate      = 20 * time.Millisecond
	tooMuchSteal = 35 * time.Millisecond // it is told in steps of 10 ms
)

// Witness does something, and notices when this machine is too busy for times of milliseconds to
// mean anything: when a ticker of this process comes late, or the hypervisor takes the CPU. It
// returns how late the ticker came, and an error that says so if the machine was too busy.
func Witness(ctx context.Context, do func() error) (late time.Duration, starved, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	before := stolen()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for due := time.Now().Add(tick); Pause(ctx, tick) == nil; due = time.Now().Add(tick) {
			late = max(late, time.Since(due))
		}
	})
	err = do()
	stop()
	ticking.Wait()
	if took := stolen() - before; late > tooLate || took > tooMuchSteal {
		starved = fmt.Errorf("the machine was busy: a ticker came %d ms late, %d ms of CPU were stolen", late.Milliseconds(), took.Milliseconds())
	}
	return late, starved, err
}
