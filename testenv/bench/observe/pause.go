package observe

import (
	"context"
	"fmt"
	"time"
)

// Pause waits for d, or until the context ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// LeadIn is how long connections must succeed before a fault.
const LeadIn = 250 * time.Millisecond

// Eventually calls try every few milliseconds until it succeeds, or within has passed.
func Eventually(ctx context.Context, within time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if late := Pause(ctx, 10*time.Millisecond); late != nil {
			return fmt.Errorf("%w: %w", late, err)
		}
	}
}
