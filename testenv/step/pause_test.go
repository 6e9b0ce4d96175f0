package step

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestEventually checks that it tries until one succeeds, and fails with the last error if none does.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		Eventually(t.Context(), time.Second, func() error {
			if tries++; tries < 3 {
				return io.EOF
			}
			return nil
		})
		if tries != 3 {
			t.Errorf("%d tries", tries)
		}
		err := Run(func() { Eventually(t.Context(), time.Second, func() error { return io.EOF }) })
		if err == nil || err.Error() != "context deadline exceeded: EOF" {
			t.Errorf("the error is %v", err)
		}
	})
}
