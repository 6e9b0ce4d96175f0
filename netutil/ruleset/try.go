package ruleset

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNotRoot means that this process may not create a network namespace. The kernel's error follows in the text.
var ErrNotRoot = errors.New("only root can try")

// Try calls f in a new network namespace that ends when f returns. The host's namespace is not touched. Goroutines
// that f starts run outside it.
func Try(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the new namespace and ends with the goroutine
		done <- try(f)
	}()
	return <-done
}

func try(f func() error) error {
	switch err := unix.Unshare(unix.CLONE_NEWNET); {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrNotRoot, err)
	case err != nil:
		return fmt.Errorf("create a network namespace: %w", err)
	}
	return f()
}
