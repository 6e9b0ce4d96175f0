// Package step ends a script of steps at the first error, as package must ends a test.
package step

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// failure carries the error of a step to Run.
type failure struct{ error }

// Run calls do and returns the error of its first failed step.
func Run(do func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	do()
	return nil
}

// Do ends the enclosing Run on an error. Call it in the goroutine of Run.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Doing adds an activity to an error and ends the enclosing Run.
func Doing(activity string, err error) {
	if err != nil {
		Do(fmt.Errorf("%s: %w", activity, err))
	}
}

// Get returns a result, and ends the enclosing Run on an error.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Close calls closer and joins its error with the error of the failed step. Defer it in
// the function of the steps.
func Close(closer func() error) {
	ended := recover()
	err := closer()
	if f, ok := ended.(failure); ok {
		err = errors.Join(f.error, err)
	} else if ended != nil {
		panic(ended)
	}
	Do(err)
}

// Named calls do and adds a name to the error of its first failed step.
func Named(name string, do func()) {
	Doing(name, Run(do))
}

// Sleep waits for d, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pause waits for d.
func Pause(ctx context.Context, d time.Duration) { Do(Sleep(ctx, d)) }

// Eventually calls try every few milliseconds until it succeeds, at most for within.
func Eventually(ctx context.Context, within time.Duration, try func() error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		if late := Sleep(ctx, 10*time.Millisecond); late != nil {
			Do(fmt.Errorf("%w: %w", late, err))
		}
	}
}
