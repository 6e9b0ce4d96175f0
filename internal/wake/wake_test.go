package wake_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var steps []time.Duration
		up := make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			wake.Loop(ctx, up, func() (next time.Time) {
				steps = append(steps, time.Since(began))
				if len(steps) < 3 {
					next = time.Now().Add(time.Second)
				}
				return next
			})
		}()
		time.Sleep(500 * time.Millisecond)
		wake.Up(up)
		time.Sleep(time.Hour)
		wake.Up(up)
		synctest.Wait()
		stop()
		<-ended
		if want := []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, time.Hour + 500*time.Millisecond}; !slices.Equal(steps, want) {
			t.Errorf("steps at %v, want %v", steps, want)
		}
		wake.Up(up)
		wake.Up(up) // there is room for one, and it does not block
		wake.Loop(ctx, up, func() time.Time { t.Error("a step although ctx is done"); return time.Time{} })
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if !wake.Pause(ctx, time.Second) || wake.Pause(ctx, time.Hour) {
			t.Error("a pause ends after its time, or when ctx is done")
		}
	})
}

func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		min, max time.Duration
		pauses   []time.Duration // after 0, 1, 2 … failures
	}{
		{100 * ms, 1000 * ms, []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}},
		{500 * ms, 500 * ms, []time.Duration{0, 500 * ms, 500 * ms}},
		{500 * ms, 100 * ms, []time.Duration{0, 100 * ms, 100 * ms}},
		{ms, 4 * ms, []time.Duration{0, ms, 2 * ms, 4 * ms, 4 * ms}},
	} {
		b := wake.Backoff{Min: c.min, Max: c.max}
		for n, want := range c.pauses {
			if got := b.After(n); got != want {
				t.Errorf("the pause of %v after %d failures is %v, want %v", b, n, got, want)
			}
		}
		if b.After(-1) != 0 || b.After(1<<40) != c.max {
			t.Errorf("the pause of %v is not limited", b)
		}
	}
}

func TestTimes(t *testing.T) {
	never, first, two := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, want time.Time }{
		{never, never, never}, {first, never, first}, {never, first, first}, {first, two, first}, {two, first, first},
	} {
		if got := wake.Earlier(c.a, c.b); got != c.want {
			t.Errorf("the earlier of %v and %v is %v, want %v", c.a, c.b, got, c.want)
		}
	}
	if wake.Due(two, never) || wake.Due(first, two) || !wake.Due(first, first) || !wake.Due(two, first) {
		t.Error("a time is due when it has come, and never is never")
	}
}
