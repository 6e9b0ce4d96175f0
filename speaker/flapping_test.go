package speaker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// A check that flaps withdraws at once every time; the way back takes longer each time.
func TestFlappingIsHeldDown(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = 3 * time.Second
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		n.took()
		for i, hold := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			s.Observe(verdict("apiserver", health.Unhealthy))
			expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
			s.Observe(verdict("apiserver", health.Healthy))
			if hold > 0 {
				time.Sleep(hold - 1)
				synctest.Wait()
				expect(t, n)
				if reason := s.Summary().Addresses[0].Reason; !strings.HasPrefix(reason, "healthy again, held down until ") {
					t.Errorf("reason during hold %d: %q", i, reason)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
			}
			expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		}
	})
}

// A check that fails again during the hold makes it no longer, and is obeyed at its end.
func TestFailureDuringTheHold(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Second
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		for range 2 {
			s.Observe(verdict("apiserver", health.Unhealthy))
			s.Observe(verdict("apiserver", health.Healthy))
		}
		n.took()
		s.Observe(verdict("apiserver", health.Unhealthy))
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// What is done on purpose is no failure, not even one that happens meanwhile.
func TestPlannedChangesAreNoFlaps(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Minute
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		verdicts := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		for range 3 {
			if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
				t.Fatal(err)
			}
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

// When this process stands still everything is withdrawn, but the blame is its own.
func TestPauseIsNoFlap(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.HoldDown = time.Minute
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		n.took()
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
