// Package step runs the parts of a benchmark. A part is a row of steps and ends at the
// first one that fails, as package must ends a test.
package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options select the measurements.
type Options struct {
	// Programs are the paths of the binaries, by name.
	Programs map[string]string
	// Repository is the folder of the project, Topologies the one of the labs' files, CRDs
	// the one of Herald's definitions.
	Repository, Topologies, CRDs string
	// Only limits the measurements: to these parts or, in the benchmarks of failover, to
	// faults with one of these texts in the name. Empty means all.
	Only []string
	// Trials is the number of trials of each fault or change.
	Trials int
	// Quick takes few and short measurements.
	Quick bool
	// Dir is an existing folder for the labs' configurations and logs.
	Dir string
}

// Part is a part of a benchmark. Who is the measured program, empty if there are several.
type Part struct {
	Name, Who string
	Run       func(ctx context.Context)
}

// Each runs the selected parts until ctx ends, and returns their errors.
func (o Options) Each(ctx context.Context, parts ...Part) (err error) {
	for _, p := range parts {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.Name) {
			continue
		}
		if e := Run(func() { p.Run(ctx) }); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", strings.TrimPrefix(p.Who+", "+p.Name, ", "), e))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

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
	if err := Run(do); err != nil {
		Do(fmt.Errorf("%s: %w", name, err))
	}
}
