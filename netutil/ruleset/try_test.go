package ruleset

import (
	"errors"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Try calls f in a namespace with no link but lo, and returns its error.
func TestTry(t *testing.T) {
	failed := errors.New("failed")
	err := Try(func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			if link.Flags&(net.FlagLoopback|net.FlagUp) != net.FlagLoopback {
				t.Errorf("the namespace has link %s with flags %s", link.Name, link.Flags)
			}
		}
		return failed
	})
	if err != failed {
		t.Errorf("error %v, want %v", err, failed)
	}
}

func TestTryWithoutRights(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its capabilities
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			done <- err
			return
		}
		done <- try(func() error { t.Error("f was called"); return nil })
	}()
	if err := <-done; !errors.Is(err, ErrNotRoot) || !errors.Is(err, unix.EPERM) {
		t.Errorf("without capabilities: error %v, want ErrNotRoot", err)
	}
}
