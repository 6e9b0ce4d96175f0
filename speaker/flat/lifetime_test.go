package flat

import (
	"testing"
	"time"
)

// An address lives for the lease, rounded up to whole seconds, and at least 2 s.
func TestLifetime(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond:  2 * time.Second,
		600 * time.Millisecond:  2 * time.Second,
		2 * time.Second:         2 * time.Second,
		2100 * time.Millisecond: 3 * time.Second,
		10 * time.Second:        10 * time.Second,
	} {
		if got := Lifetime(lease); got != want {
			t.Errorf("with a lease of %v an address lives %v, want %v", lease, got, want)
		}
	}
}
