//go:build e2e

package site

import (
	"fmt"
	"testing"
	"time"
)

const (
	// Poll is the pause between two looks at a condition.
	Poll = 100 * time.Millisecond
	// Soon is how long anything may take that should be quick, on a machine that is busy: three real API servers
	// that start beside two busy loops took more than a minute.
	Soon = 3 * time.Minute
)

// Eventually waits until try succeeds, or the test fails with its last error: no machine is so
// starved that it has not done in minutes what takes seconds.
func Eventually(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	ticker := time.NewTicker(Poll)
	defer ticker.Stop()
	deadline := time.Now().Add(within)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatalf("test ended while waiting: %v", err)
		}
	}
}

// ErrorIf is an error that says what is wrong, if something is.
func ErrorIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}
