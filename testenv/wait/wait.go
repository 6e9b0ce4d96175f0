// Package wait has the tests of single packages wait for what something else brings about.
// End-to-end tests have a way of their own, which says what was missing last.
package wait

import (
	"testing"
	"time"
)

// patience is when a test is given up. A busy machine takes long.
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
			t.Fatalf("waited in vain for: %s", what)
		case <-poll.C:
		}
	}
}
