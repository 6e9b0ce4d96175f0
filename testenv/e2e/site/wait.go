//go:build e2e

package site

import (
	"fmt"
	"testing"
	"time"
)

const (
	// Poll is the pause between two tests of a condition.
	Poll = 100 * time.Millisecond
	// Soon bounds the wait for quick events on a busy machine: three real API servers
	// that started beside two busy loops took more than a minute.
	Soon = 3 * time.Minute
)

// Eventually waits until try succeeds, or fails the test with its last error. Even on
// a starved machine a wait of seconds does not take minutes.
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

// ErrorIf returns an error with this message if wrong is true, else nil.
func ErrorIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}
