package speaker_test

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// With Demote a failure marks the route and keeps the address. An address that never was healthy is not
// announced.
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

		// Damping limits the updates to peers.
		s.Observe(verdict("apiserver", health.Unhealthy))
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "mark 10.99.0.10")
		pass(time.Second)
		expect(t, n, "announce 10.99.0.10")

		// A drain withdraws the demoted route, which does not return while unhealthy.
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.takeSteps()
		drain(t, s)
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if last := s.Summary().Addresses[0].LastWithdrawal; last != nil {
			t.Errorf("a drain counts as a failure: %+v", last)
		}
		s.Undrain()
		expect(t, n)
	})
}

// A reload that removes the policy withdraws the demoted route.
func TestReloadEndsDemotion(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := vip()
		v.OnFailure = speaker.Demote
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.takeSteps()
		v.OnFailure = speaker.Withdraw
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
	})
}
