package step

import (
	"errors"
	"io"
	"testing"
)

// TestRun checks that the first error ends the steps, and that what they opened is closed.
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
