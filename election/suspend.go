package election

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspensionNoise exceeds the usual error of suspended. No computer is suspended for less.
const suspensionNoise = 10 * time.Millisecond

// suspended returns how long this computer has been suspended since its start. CLOCK_BOOTTIME counts that time;
// CLOCK_MONOTONIC does not, and package time and nftables follow it. A pause of the process between the two readings
// makes the result less, and the next call notices the rest. A hypervisor may stop both clocks unnoticed.
func suspended() time.Duration {
	var boot, monotonic unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - monotonic.Nano())
}

// noteSuspension tells the machine of a suspension since the last call. The mutex is held.
func (n *node) noteSuspension(now time.Time) {
	s := n.suspended()
	if s > n.slept+suspensionNoise {
		n.machine.Resume(now)
	}
	n.slept = max(n.slept, s)
}
