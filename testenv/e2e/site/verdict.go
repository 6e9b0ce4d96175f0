//go:build e2e

package site

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/herald-vip/herald/testenv/e2e/witness"
)

// StartWitness starts a witness of starvation, until the test is over.
func StartWitness(t *testing.T) *witness.Witness {
	t.Helper()
	w := witness.Start()
	t.Cleanup(w.Close)
	return w
}

// FailTiming fails the test because of a condition that depends on timing. If a
// witness reports starvation, which may explain it, the test ends without a verdict,
// and is counted in the file named by HERALD_INCONCLUSIVE. Safety violations must not
// be reported like this.
func FailTiming(t *testing.T, starved, format string, args ...any) {
	t.Helper()
	if starved == "" {
		t.Errorf(format, args...)
		return
	}
	line := fmt.Sprintf("INCONCLUSIVE: %s: %s: %s\n", t.Name(), starved, fmt.Sprintf(format, args...))
	fmt.Print(line)
	if path := os.Getenv("HERALD_INCONCLUSIVE"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		Must(t, err)
		_, err = fmt.Fprintf(f, "INCONCLUSIVE: %s: %s\n", t.Name(), starved)
		Must(t, err)
		Must(t, f.Close())
	}
	if !t.Failed() {
		t.Skip(line)
	}
}

// Nightly reports whether tests have time for everything.
func Nightly() bool { return os.Getenv("HERALD_NIGHTLY") != "" }

// Mark is the beginning of a time without changes.
type Mark struct {
	// At is the observer's clock, Time the wall clock.
	At    time.Duration
	Time  time.Time
	epoch uint64
}
