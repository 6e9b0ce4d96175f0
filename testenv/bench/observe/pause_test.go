package observe

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestEventually checks that it tries until one succeeds, and returns the last error if none does.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		if err := Eventually(t.Context(), time.Second, func() error {
			if tries++; tries < 3 {
				return io.EOF
			}
			return nil
		}); err != nil || tries != 3 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if err := Eventually(t.Context(), time.Second, func() error { return io.EOF }); err == nil || err.Error() != "context deadline exceeded: EOF" {
			t.Errorf("the error is %v", err)
		}
	})
}
