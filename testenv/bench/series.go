package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxRepeats is how often one series repeats trials that were disturbed or failed.
const maxRepeats = 5

// attempts makes series of trials in a lab, which it starts when there is none.
// A trial that goes wrong is reported and made again in a new lab: what remains
// of the old one proves nothing.
type attempts struct {
	*bench
	start   func(context.Context) error
	close   func() error
	running bool
}

// series makes the trials of one fault.
func (a *attempts) series(ctx context.Context, speaker, fault string, trials int, each func(context.Context, int) ([]Trial, error)) error {
	began := time.Now()
	first := len(a.results.Trials)
	repeats := 0
	for number := 1; number <= trials; {
		made, err := a.try(ctx, number, each)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			repeats++
			fmt.Fprintf(a.out, "  %s, %s, trial %d is made again: %v\n", speaker, fault, number, err)
			if repeats > maxRepeats {
				return fmt.Errorf("%s, %s: given up after %d repeated trials: %w", speaker, fault, repeats, err)
			}
			if errors.Is(err, errDisturbed) {
				continue
			}
			if err := a.stop(); err != nil {
				return err
			}
			continue
		}
		for _, t := range made {
			t.Number = number
			a.results.Trials = append(a.results.Trials, t)
		}
		number++
	}
	part := Results{Trials: a.results.Trials[first:]}
	for _, s := range part.Summaries() {
		fmt.Fprintf(a.out, "%-22s %-32s %-8s %s\n", s.Speaker, s.Fault, s.Router, s.brief())
	}
	fmt.Fprintf(a.out, "  %d trials in %s\n", trials, time.Since(began).Round(100*time.Millisecond))
	return nil
}

// try makes one trial.
func (a *attempts) try(ctx context.Context, number int, each func(context.Context, int) ([]Trial, error)) ([]Trial, error) {
	if !a.running {
		if err := a.start(ctx); err != nil {
			return nil, err
		}
		a.running = true
	}
	return each(ctx, number)
}

// stop closes the lab, if there is one.
func (a *attempts) stop() error {
	if !a.running {
		return nil
	}
	a.running = false
	return a.close()
}
