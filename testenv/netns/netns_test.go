package netns

import (
	"errors"
	"os"
	"runtime"
	"testing"
)

// TestInReturns checks that In returns however f ends, with its error.
func TestInReturns(t *testing.T) {
	ns, _ := New(t)
	for name, c := range map[string]struct {
		f    func() error
		want error
	}{
		"done":   {func() error { return nil }, nil},
		"failed": {func() error { return os.ErrClosed }, os.ErrClosed},
		"ended":  {func() error { runtime.Goexit(); return nil }, errEnded},
	} {
		if err := In(ns, c.f); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
