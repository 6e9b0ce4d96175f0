package ruleset

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotRoot means that this process must not make a network namespace. The kernel's reason follows.
var ErrNotRoot = errors.New("only root can try")

// Try calls f in a new network namespace that ends with it, and so does not touch the host's. Goroutines
// that f starts are not in it.
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
