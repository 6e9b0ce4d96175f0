package speaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// A VIP moves from one peer to another: make before break.
func TestMoveBetweenPeers(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		to := func(names ...string) {
			v := vip()
			v.Peers = names
			s.Apply([]speaker.VIP{v}, peers(), verdicts)
		}
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		to("r1")
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
		to("r2")
		expect(t, n, "announce 10.99.0.10 to [r2] draining [r1]")
		wait(499 * time.Millisecond)
		expect(t, n)
		wait(time.Millisecond)
		expect(t, n, "announce 10.99.0.10 to [r2]")
		to()
		expect(t, n, "announce 10.99.0.10")
		wait(time.Minute)
		expect(t, n)
		to("r3")
		expect(t, n, "announce 10.99.0.10 to [r3] draining [r1 r2]")
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10")
		wait(time.Minute)
		expect(t, n)
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r3]")
	})
}

// Peers may change while nothing is announced: no one has to part then.
func TestPeersChangeWhileWithdrawn(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		failed := verdict("apiserver", health.Unhealthy)
		s.Observe(failed)
		n.took()
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), []health.Verdict{failed, verdict("registry", health.Healthy)})
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r1]")
	})
}

// To another link and to another peer in one go.
func TestMoveToAnotherLinkAndPeer(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		verdicts := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		v := vip()
		v.Peers = []string{"r1"}
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		n.took()
		v.Peers, v.Interface = []string{"r2"}, "dummy0"
		s.Apply([]speaker.VIP{v}, peers(), verdicts)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10 to [r2] draining [r1]")
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "announce 10.99.0.10 to [r2]", "unbind 10.99.0.10")
	})
}
