package health

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pauseSlack is how late a check must be before it concludes that this process was
// suspended. A signal may have stopped it, or its cgroup frozen it, or its machine was
// paused or asleep. pauseSlack is well above the delays of a busy scheduler, so that load
// withdraws no healthy endpoint. It is below the shortest BGP hold time (3 s), so
// that a pause is detected before a peer that dropped the session has a new one.
// A shorter pause only makes the verdict that much older than usual.
const pauseSlack = 2 * time.Second

// pauses detects that this process was suspended, which makes its verdicts stale.
type pauses struct {
	asleep func() time.Duration // how long the machine has been asleep since it booted
	before time.Duration        // asleep at the last call of since
}

func newPauses() pauses { return pauses{asleep: asleep, before: asleep()} }

// since returns how long this process was suspended, given that it was due to run
// at due; 0 if the delay is below pauseSlack. The monotonic clock of due does not count a
// machine's sleep, so since adds it. A pause is undetectable if the hypervisor also
// stops the clocks of its guest.
func (p *pauses) since(due, now time.Time) time.Duration {
	total := p.asleep()
	slept := total - p.before
	p.before = total
	if late := now.Sub(due) + slept; late >= pauseSlack {
		return late
	}
	return 0
}

// asleep returns how long the machine has been suspended since boot: CLOCK_BOOTTIME counts that time, CLOCK_MONOTONIC does not.
func asleep() time.Duration {
	var boot, running unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &running) != nil {
		return 0 // every Linux has these clocks
	}
	return time.Duration(boot.Nano() - running.Nano())
}

func pauseReason(d time.Duration) string {
	return fmt.Sprintf("this process did not run for %v: checking again", d.Round(100*time.Millisecond))
}
