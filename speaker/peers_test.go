package speaker_test

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// A VIP that moves between peers is announced to the new peer before it is withdrawn from the old one.
func TestMoveBetweenPeers(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := passing()
		apply := func(names ...string) {
			v := vip()
			v.Peers = names
			s.Apply([]speaker.VIP{v}, peers(), verdicts)
		}
		apply("r1")
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
		apply("r2")
		expect(t, n, "announce 10.99.0.10 to [r2] draining [r1]")
		pass(499 * time.Millisecond)
		expect(t, n)
		pass(time.Millisecond)
		expect(t, n, "announce 10.99.0.10 to [r2]")
		apply()
		expect(t, n, "announce 10.99.0.10")
		pass(time.Minute)
		expect(t, n)
		apply("r3")
		expect(t, n, "announce 10.99.0.10 to [r3] draining [r1 r2]")
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		pass(time.Minute)
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r3]")
	})
}

// A change of peers while the VIP is withdrawn leaves no stale paths.
func TestPeersChangeWhileWithdrawn(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.takeSteps()
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
	})
}

// The VIP moves to another link and another peer at once.
func TestMoveToAnotherLinkAndPeer(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := passing()
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		n.takeSteps()
		v.Peers, v.Interface = []string{"r2"}, "dummy0"
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r2] draining [r1]")
		pass(time.Minute)
		expect(t, n, "announce 10.99.0.10 to [r2]", "unbind 10.99.0.10")
	})
}
