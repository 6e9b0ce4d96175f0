//go:build e2e && clock

package session

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/testenv/e2e/site"
)

// TestClockJumps sets the host's clock an hour ahead and an hour back, many times and
// each for a moment. Meanwhile the speaker checks, refreshes and withdraws,
// unaffected. The clock is the whole host's, so this test has its own build tag.
func TestClockJumps(t *testing.T) {
	// So many checks that some are in progress when the clock jumps.
	s := newAnnouncingSite(t, site.Files{"herald/herald.yaml": strings.Replace(site.BothPeers, "{name: apiserver, http", "{name: apiserver, interval: 10ms, http", 1)})
	calm := watchBystander(t, s)
	address := followAddress(t, s.Node("s"), site.VIP4)
	for range 10 {
		jump(t, time.Hour)
		jump(t, -time.Hour)
	}
	probed(t, s, 10)
	calm.untouched(t)
	if n := address.removals(); n > 0 {
		t.Errorf("the address was removed %d times", n)
	}

	// Events while the clock is wrong are handled as usual.
	s.ApiserverDies()
	jump(t, time.Hour)
	withdrawn(t, s)
	s.ApiserverStarts(t)
	jump(t, -time.Hour)
	announced(t, s)
}

// jump moves the clock by this much for a moment, and always back again.
func jump(t *testing.T, by time.Duration) {
	t.Helper()
	const moment = 20 * time.Millisecond
	wall, mono := clocks(t)
	defer func() {
		_, now := clocks(t)
		setClock(t, wall+now-mono)
	}()
	setClock(t, wall+by)
	<-time.After(moment)
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

func setClock(t *testing.T, wall time.Duration) {
	t.Helper()
	ts := unix.NsecToTimespec(int64(wall))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Error(err)
	}
}
