package step

import (
	"context"
	"fmt"
	"time"
)

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
