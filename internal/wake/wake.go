// Package wake lets a goroutine sleep until there is work. A zero time means never.
package wake

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Loop calls step at once, each time that wake receives, and at the time that step returned last, until ctx is done.
func Loop(ctx context.Context, wake <-chan struct{}, step func() time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		if next := step(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
	}
}

// Up wakes the receiver of c, which has a buffer of one. It never blocks.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pause waits for d. It returns false if ctx is done before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Backoff is a pause between repeated attempts. It starts at Min and doubles up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns the pause after n failures in a row: none after 0.
func (b Backoff) After(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	pause := b.Min
	for ; n > 1 && pause < b.Max; n-- {
		pause *= 2
	}
	return min(pause, b.Max)
}

// Due reports whether t has come.
func Due(now, t time.Time) bool { return !t.IsZero() && !now.Before(t) }

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Suspended returns how long this computer has been suspended since its start. CLOCK_BOOTTIME counts that time;
// CLOCK_MONOTONIC does not, and package time and nftables follow it. A pause of the process between the two readings
// makes the result less, and the next call notices the rest. A hypervisor may stop both clocks unnoticed.
func Suspended() time.Duration {
	var boot, monotonic unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil {
		return 0 // every Linux has these clocks
	}
	return time.Duration(boot.Nano() - monotonic.Nano())
}
