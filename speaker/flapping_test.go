package speaker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// A flapping check withdraws at once each time. The return takes longer each time.
func TestFlappingIsHeldDown(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = 3 * time.Second
		serve(s, n, v)
		for i, hold := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			s.Observe(verdict("apiserver", health.Unhealthy))
			expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
			s.Observe(verdict("apiserver", health.Healthy))
			if hold > 0 {
				pass(hold - 1)
				expect(t, n)
				if reason := s.Summary().Addresses[0].Reason; !strings.HasPrefix(reason, "healthy again, held down until ") {
					t.Errorf("reason during hold %d: %q", i, reason)
				}
				pass(time.Nanosecond)
			}
			expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		}
	})
}

// A failure during the hold-down does not extend it. At its end the check still fails, so the VIP stays withdrawn.
func TestFailureDuringTheHold(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Second
		serve(s, n, v)
		for range 2 {
			s.Observe(verdict("apiserver", health.Unhealthy))
			s.Observe(verdict("apiserver", health.Healthy))
		}
		n.takeSteps()
		s.Observe(verdict("apiserver", health.Unhealthy))
		pass(time.Minute)
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// Planned changes, and failures during them, do not count as flaps.
func TestPlannedChangesAreNoFlaps(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Minute
		serve(s, n, v)
		verdicts := passing()
		for range 3 {
			drain(t, s)
			s.Undrain()
			v.Linger += time.Second
			s.Apply([]speaker.VIP{v}, peers(), verdicts)

			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_ = s.Drain("the apiserver is about to be replaced", 0)(ctx)
			cancel()
			s.Observe(verdict("apiserver", health.Unhealthy))
			s.Undrain()
			s.Observe(verdict("apiserver", health.Healthy))
			if st := s.Summary().Addresses[0]; st.Stage != speaker.Announced {
				t.Fatalf("%s: %s", st.Stage, st.Reason)
			}
		}
	})
}

// A pause of this process withdraws everything but does not count as a failure of the checks.
func TestPauseIsNoFlap(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Minute
		serve(s, n, v)
		for range 3 {
			paused := verdict("apiserver", health.Unhealthy)
			paused.Paused = true
			s.Observe(paused)
			expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
			s.Observe(verdict("apiserver", health.Healthy))
			expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		}
	})
}
