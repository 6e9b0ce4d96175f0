package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/herald-vip/herald/testenv/step"
)

const (
	tick = 2 * time.Millisecond
	// tooLate is the tolerated delay of a ticker, and tooMuchSteal the tolerated steal
	// time of the CPUs, during a measurement.
	tooLate      = 20 * time.Millisecond
	tooMuchSteal = 35 * time.Millisecond // its resolution is 10 ms
)

// Witness calls do, and detects when this machine is too busy for times of
// milliseconds: a ticker of this process is late, or the hypervisor takes the CPU. It
// returns the ticker's largest delay, and in starved an error if the machine was too
// busy.
func Witness(ctx context.Context, do func()) (late time.Duration, starved error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	before := stolen()
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for due := time.Now().Add(tick); step.Sleep(ctx, tick) == nil; due = time.Now().Add(tick) {
			late = max(late, time.Since(due))
		}
	})
	do()
	stop()
	ticking.Wait()
	if took := stolen() - before; late > tooLate || took > tooMuchSteal {
		starved = fmt.Errorf("the machine was busy: a ticker came %d ms late, %d ms of CPU were stolen", late.Milliseconds(), took.Milliseconds())
	}
	return late, starved
}
