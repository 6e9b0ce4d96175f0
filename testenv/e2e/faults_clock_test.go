//go:build e2e && clock

package e2e

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClockJumps sets the host's clock, for a fraction of a second, an hour
// ahead and an hour back, while the speaker announces and withdraws: nobody
// notices. The clock is the whole host's, so this test has a build tag of its own.
func TestClockJumps(t *testing.T) {
	s := newAnnouncingSite(t, files{"herald/herald.yaml": fastChecks})
	calm := s.bystander(t)
	address := followAddress(t, s.Node("s"), vip4)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		jump(t, by)
		s.probed(t, 10)
		calm.untouched(t)
	}
	if n := address.removals(); n > 0 {
		t.Errorf("the address was removed %d times", n)
	}

	// What happens while the clock is wrong is dealt with as ever.
	s.apiserverDies()
	jump(t, time.Hour)
	s.withdrawn(t)
	s.apiserverStarts(t)
	jump(t, -time.Hour)
	s.announced(t)
}

// jump moves the clock by this much, for a time in which several checks are
// made, and back again, whatever happens to the test.
func jump(t *testing.T, by time.Duration) {
	t.Helper()
	const wrong = 300 * time.Millisecond
	wall, mono := clocks(t)
	defer func() {
		_, now := clocks(t)
		setClock(t, wall+now-mono)
	}()
	setClock(t, wall+by)
	<-time.After(wrong)
}

// clocks reads the wall clock and the monotonic one.
func clocks(t *testing.T) (wall, mono time.Duration) {
	t.Helper()
	var a, b unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &a); err != nil {
		t.Error(err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &b); err != nil {
		t.Error(err)
	}
	return time.Duration(a.Nano()), time.Duration(b.Nano())
}

func setClock(t *testing.T, to time.Duration) {
	t.Helper()
	ts := unix.NsecToTimespec(int64(to))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Error(err)
	}
}
