package ruleset

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotRoot is Try's for who must not make a network namespace. It comes with the kernel's reason.
var ErrNotRoot = errors.New("only root can try")

// Try returns what f does in an empty network namespace of its own, which goes at once, so that the
// host's is not touched. It is f's thread that is there, and none that f starts.
func Try(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread, which is elsewhere now, ends with the goroutine
		done <- try(f)
	}()
	return <-done
}

func try(f func() error) error {
	switch err := unix.Unshare(unix.CLONE_NEWNET); {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrNotRoot, err)
	case err != nil:
		return fmt.Errorf("make a network namespace to try in: %w", err)
	}
	return f()
}
