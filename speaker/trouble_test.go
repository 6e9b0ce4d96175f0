package speaker_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

func TestBindFailureIsRetriedAndNeverAnnounced(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		n.set(func() { n.bindErr = errors.New("link eth9 not found") })
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		expect(t, n)
		if err := s.Summary().Addresses[0].Error; err != "link eth9 not found" {
			t.Errorf("status error %q", err)
		}
		n.set(func() { n.bindErr = nil })
		pass(time.Minute)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// The route of a removed address is withdrawn after a second, and returns with the address.
func TestRouteOfARemovedAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		n.set(func() { n.removed = true })
		pass(1500 * time.Millisecond)
		expect(t, n)
		pass(2 * time.Second)
		expect(t, n, "withdraw 10.99.0.10")
		if a := s.Summary().Addresses[0]; a.Error == "" || a.Blocked.IsZero() {
			t.Errorf("%+v", a)
		}
		n.set(func() { n.removed = false })
		pass(time.Second)
		expect(t, n, "announce 10.99.0.10")
	})
}

// The withdrawal of an address that was never bound is done at once.
func TestWithdrawalOfUnboundAddressIsDone(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.set(func() { n.bindErr = errors.New("link eth9 not found") })
		healthy(s)
		s.Observe(verdict("apiserver", health.Unhealthy))
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Done.IsZero() {
			t.Errorf("last withdrawal: %+v", last)
		}
	})
}

// One call removes all addresses. If it fails, only the stuck address is retried.
func TestUnbindFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		dual := vip()
		dual.Addresses = []netip.Addr{v4, v6}
		serve(s, n, dual)
		n.set(func() { n.stuck = v6 })
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10")
		for _, st := range s.Summary().Addresses {
			if stuck := st.Address == v6; stuck != (st.Error != "") || stuck != st.LastWithdrawal.Done.IsZero() {
				t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
			}
		}
		n.set(func() { n.stuck = netip.Addr{} })
		pass(time.Minute)
		expect(t, n, "unbind fd00:99::10")
	})
}

// A failed withdrawal of a route does not keep the address bound, and is retried.
func TestWithdrawalFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		n.set(func() { n.withdrawErr = errors.New("out of memory") })
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
		if st := s.Summary().Addresses[0]; st.Error == "" || !st.LastWithdrawal.Done.IsZero() {
			t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
		}
		n.set(func() { n.withdrawErr = nil })
		pass(time.Minute)
		expect(t, n, "withdraw 10.99.0.10")
	})
}
