package fence

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Probe says whether a fence can be had here: nil if so, an ErrUnsupported with the
// reason if not. It makes the tables in an empty network namespace of their own, which
// goes at once, so that the host's, and what a Herald gates in them, are not touched.
func Probe() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread, which is elsewhere now, ends with the goroutine
		done <- probe()
	}()
	return <-done
}

func probe() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("%w: only root can try: %w", ErrUnsupported, err)
		}
		return fmt.Errorf("try the kernel fence in a network namespace: %w", err)
	}
	k := &nft{}
	defer k.Close()
	if err := k.rebuild([]netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1})}, nil); err != nil { // TEST-NET-1 (RFC 5737)
		return unsupported(err)
	}
	return nil
}

// Left says whether Herald's tables are there, be it that one runs, or that one was killed.
func Left() (bool, error) {
	k := &nft{}
	defer k.Close()
	left, err := k.left()
	if err != nil {
		return false, fmt.Errorf("look for a kernel fence: %w", err)
	}
	return left, nil
}
