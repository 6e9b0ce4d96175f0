package observe

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/must"
	"github.com/herald-vip/herald/testenv/step"
)

// TestMachine reads the figures of this machine and of this process.
func TestMachine(t *testing.T) {
	own, cpu := must.Get[time.Duration](t)(CPUOf(0)), must.Get[time.Duration](t)(CPUOf(os.Getpid()))
	var resident float64
	var busy time.Duration
	must.Do(t, step.Run(func() {
		resident, busy = Resident(os.Getpid()), Busy()
		NeighbourOverflows()
	}))
	if own <= 0 || cpu < own || busy < cpu || resident < 1<<20 {
		t.Errorf("CPU %v, then %v of %v; %v bytes", own, cpu, busy, resident)
	}
	if group, err := Group(syscall.Getpgrp()); err != nil || !slices.Contains(group, os.Getpid()) {
		t.Errorf("%v, %v", group, err)
	}
	if _, err := CPUOf(1 << 22); err == nil {
		t.Error("an impossible process has a clock")
	}
	if _, err := SoftIRQ(); err != nil {
		t.Error(err)
	}
}
