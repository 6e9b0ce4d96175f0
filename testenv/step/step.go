// Package step writes scripts of steps that end at the first one that fails, as package
// must does in tests.
package step

import (
	"errors"
	"fmt"
)

// failure carries the error of a step to Run.
type failure struct{ error }

// Run calls do and returns the error of the step that ended it.
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

// Do ends the enclosing Run on an error. It works in the goroutine of Run only.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Doing is Do for an error to which it adds what was being done.
func Doing(what string, err error) {
	if err != nil {
		Do(fmt.Errorf("%s: %w", what, err))
	}
}

// Get returns a result, and ends the enclosing Run on an error.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Close is deferred to close something at the end of a step. It adds the error to that
// of the step.
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

// Named adds a name to the error of the steps in do.
func Named(name string, do func()) {
	Doing(name, Run(do))
}
