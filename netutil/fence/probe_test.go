package fence

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// To try the fence leaves nothing behind, and what is gated already as it is.
func TestProbeTouchesNothing(t *testing.T) {
	h := newHost(t)
	h.in(func() {
		if err := Probe(); err != nil {
			t.Errorf("no fence where the other tests have one: %v", err)
		}
		if left, err := Left(); err != nil || left {
			t.Errorf("tables are left: %t, %v", left, err)
		}
		k := &nft{}
		defer k.Close()
		if err := k.rebuild(nil, nil); err != nil {
			t.Error(err)
		}
		if err := Probe(); err != nil {
			t.Error(err)
		}
		if left, err := Left(); err != nil || !left {
			t.Errorf("the tables are gone: %t, %v", left, err)
		}
	})
}

func TestProbeWithoutRights(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread has lost its capabilities
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			done <- err
			return
		}
		done <- probe()
	}()
	if err := <-done; !errors.Is(err, ErrUnsupported) {
		t.Errorf("without capabilities: %v, want ErrUnsupported", err)
	}
}
