package health

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pauseSlack is how late a check must be to conclude that this process stood
// still: stopped by a signal, frozen by its cgroup, on a machine that was
// paused or asleep. It is well above what a busy scheduler does, so that load
// does not withdraw a healthy endpoint, and below the shortest BGP hold time (3 s), so
// that it is noticed before a peer that gave up the session has a new one.
// With a shorter pause the verdict is at most that much older than usual.
const pauseSlack = 2 * time.Second

// pauses finds out that this process stood still. What it found out about the
// world before is history then.
type pauses struct {
	asleep func() time.Duration // how long the machine has been asleep since it booted
	before time.Duration        // what that was at the last look
}

func newPauses() pauses { return pauses{asleep: asleep, before: asleep()} }

// since says for how long this process did not run, which should have been here
// at due; 0 if it is not worth mentioning. A machine's sleep does not count in
// the monotonic clock that due is from, and is added. A hypervisor that stops
// the clocks of its guest as well leaves no trace.
func (p *pauses) since(due, now time.Time) time.Duration {
	total := p.asleep()
	slept := total - p.before
	p.before = total
	if late := now.Sub(due) + slept; late >= pauseSlack {
		return late
	}
	return 0
}

// asleep is what the clock that counts a suspended machine's time is ahead of the one that does not.
func asleep() time.Duration {
	var boot, running unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &running) != nil {
		return 0 // there is no Linux without these clocks
	}
	return time.Duration(boot.Nano() - running.Nano())
}

func pauseReason(d time.Duration) string {
	return fmt.Sprintf("this process did not run for %v: checking again", d.Round(100*time.Millisecond))
}
