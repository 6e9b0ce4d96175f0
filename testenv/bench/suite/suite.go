// Package suite runs the parts of a benchmark.
package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/herald-vip/herald/testenv/step"
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

// Part is a part of a benchmark. Field Who names the measured program; empty if there are several.
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
		if e := step.Run(func() { p.Run(ctx) }); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", strings.TrimPrefix(p.Who+", "+p.Name, ", "), e))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}
