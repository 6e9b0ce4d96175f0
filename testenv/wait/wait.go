// Package wait lets the tests of single packages wait for asynchronous effects.
// End-to-end tests have their own way, which reports the missing condition.
package wait

import (
	"context"
	"sync"
	"testing"
	"time"
)

// patience bounds a wait, on a busy machine.
const patience = time.Minute

// Go runs f beside the test, until stop is called or the test ends.
func Go(t testing.TB, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

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
