package step

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun checks that the first error ends the steps, and that Run closes all that they opened.
func TestRun(t *testing.T) {
	done := ""
	err := Run(func() {
		defer Close(func() error { done += "closed"; return io.ErrClosedPipe })
		Named("trial 1", func() { done += Get("opened ", nil); Do(io.EOF) })
		done += "never"
	})
	if done != "opened closed" || !errors.Is(err, io.EOF) || err.Error() != "trial 1: EOF\nio: read/write on closed pipe" {
		t.Errorf("%s: %v", done, err)
	}
}

// TestPanic checks that a panic is no error of a step.
func TestPanic(t *testing.T) {
	defer func() {
		if got := recover(); got != "other" {
			t.Errorf("the panic is %v", got)
		}
	}()
	_ = Run(func() {
		defer Close(func() error { return nil })
		panic("other")
	})
}

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
