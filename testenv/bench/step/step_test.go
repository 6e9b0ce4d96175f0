package step

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
)

// TestEach checks that a part ends at its first error, that what it opened is closed,
// and that the next part follows.
func TestEach(t *testing.T) {
	var done []string
	note := func(what string) { done = append(done, what) }
	err := Options{Only: []string{"a", "c"}}.Each(t.Context(),
		Part{Name: "a", Who: "herald", Run: func(context.Context) {
			defer Close(func() error { note("closed"); return io.ErrClosedPipe })
			Named("trial 1", func() { Do(io.EOF) })
			note("never")
		}},
		Part{Name: "b", Run: func(context.Context) { note("b") }},
		Part{Name: "c", Run: func(context.Context) { note(Get("c", nil)) }})
	if !slices.Equal(done, []string{"closed", "c"}) {
		t.Errorf("done are %q", done)
	}
	if !errors.Is(err, io.EOF) || err.Error() != "herald, a: trial 1: EOF\nio: read/write on closed pipe" {
		t.Errorf("the error is %v", err)
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
