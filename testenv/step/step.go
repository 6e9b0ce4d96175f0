// Package step ends a script of steps at the first error, as package must ends a test.
package step

import (
	"errors"
	"fmt"
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
