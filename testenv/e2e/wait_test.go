//go:build e2e

package e2e

import (
	"testing"
	"time"
)

const (
	// poll is the pause between two looks at a condition.
	poll = 100 * time.Millisecond
	// soon is how long anything may take that should be quick, on a machine that is busy.
	soon = 30 * time.Second
)

// eventually waits until try succeeds. If it has not in time, the test ends with its last error.
func eventually(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	ticker := time.NewTicker(poll)
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
