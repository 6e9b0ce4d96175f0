// Package wait lets the tests of single packages wait for asynchronous effects.
// End-to-end tests have their own way, which reports the missing condition.
package wait

import (
	"testing"
	"time"
)

// patience bounds a wait, on a busy machine.
const patience = time.Minute

// Until waits until a condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("timed out waiting for: %s", what)
		case <-poll.C:
		}
	}
}
