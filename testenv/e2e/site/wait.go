//go:build e2e

package site

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/testenv/e2e/witness"
	"github.com/herald-vip/herald/testenv/soak"
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
	deadline := time.Now().Add(within)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		if !wake.Pause(t.Context(), Poll) {
			t.Fatalf("test ended while waiting: %v", err)
		}
	}
}

// Becomes waits until check accepts what get returns.
func Becomes[T any](t *testing.T, get func() (T, error), check func(T) error) {
	t.Helper()
	Eventually(t, Soon, func() error {
		v, err := get()
		if err != nil {
			return err
		}
		return check(v)
	})
}

// Settled waits until look has returned the same for a second, and returns that.
func Settled[T any](t *testing.T, look func() T) (last T) {
	t.Helper()
	const calm = time.Second
	since := time.Now()
	Eventually(t, Soon, func() error {
		if now := look(); !reflect.DeepEqual(now, last) {
			last, since = now, time.Now()
		}
		return ErrorIf(time.Since(since) < calm, "it continues to change: %v", last)
	})
	return last
}

// ErrorIf returns an error with this message if wrong is true, else nil.
func ErrorIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Check returns err unless it is nil, and else the error of [ErrorIf].
func Check(err error, wrong bool, format string, args ...any) error {
	return cmp.Or(err, ErrorIf(wrong, format, args...))
}

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
		f := Get[*os.File](t)(os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))
		_, err := fmt.Fprintf(f, "INCONCLUSIVE: %s: %s\n", t.Name(), starved)
		Must(t, err)
		Must(t, f.Close())
	}
	if !t.Failed() {
		t.Skip(line)
	}
}

// Nightly reports whether tests have time for everything.
func Nightly() bool { return os.Getenv("HERALD_NIGHTLY") != "" }

// Scale returns the size of a test, each night or usually.
func Scale(nightly, usual int) int {
	if Nightly() {
		return nightly
	}
	return usual
}

// Mark is the beginning of a time without changes.
type Mark struct {
	// At is the observer's clock, Time the wall clock.
	At    time.Duration
	Time  time.Time
	epoch uint64
}

// Soak is a short `make soak`, with the race detector in the speakers. It fails the
// test for each violation.
func Soak(t *testing.T, o soak.Options) *soak.Report {
	t.Helper()
	o.Herald, o.Testenv, o.Dir = Part(t, "HERALD_RACE"), Part(t, "TESTENV"), t.TempDir()
	report := Get[*soak.Report](t)(soak.Run(t.Context(), Log(t), o))
	var text strings.Builder
	Must(t, report.WriteText(&text))
	t.Log(text.String())
	if len(report.Violations) > 0 {
		t.Errorf("%d violations, see above", len(report.Violations))
	}
	return report
}
