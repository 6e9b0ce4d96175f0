package observe

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

// TestMachine reads the figures of this machine and of this process.
func TestMachine(t *testing.T) {
	own, ownErr := CPUOf(0)
	cpu, cpuErr := CPUOf(os.Getpid())
	resident, residentErr := Resident(os.Getpid())
	busy, busyErr := Busy()
	_, neighbourErr := NeighbourOverflows()
	for _, err := range []error{ownErr, cpuErr, residentErr, busyErr, neighbourErr} {
		if err != nil {
			t.Error(err)
		}
	}
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
