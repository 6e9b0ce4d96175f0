package speaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// With Demote a failure marks the route, and the address stays; but nothing is
// announced that never was healthy.
func TestDemote(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.OnFailure, v.HoldDown = speaker.Demote, time.Minute
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")

		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "mark 10.99.0.10")
		if st := s.Summary().Addresses[0]; st.Stage != speaker.Demoted || st.Reason != "apiserver: because" || st.LastWithdrawal != nil {
			t.Errorf("status %+v", st)
		}
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "announce 10.99.0.10")

		// Damping bounds how often peers are told.
		s.Observe(verdict("apiserver", health.Unhealthy))
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "mark 10.99.0.10")
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, n, "announce 10.99.0.10")

		// On purpose it goes, and does not come back unhealthy.
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.took()
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last != nil {
			t.Errorf("a drain passes for a failure: %+v", last)
		}
		s.Undrain()
		expect(t, n)
	})
}

// A reload that ends the policy ends what it keeps.
func TestDemoteIsTakenBack(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.OnFailure = speaker.Demote
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.took()
		v.OnFailure = speaker.Withdraw
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
	})
}
