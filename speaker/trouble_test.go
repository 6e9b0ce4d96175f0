package speaker_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

func TestBindFailureIsRetriedAndNeverAnnounced(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		n.setRefuse(errors.New("link eth9 not found"))
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		expect(t, n)
		if err := s.Summary().Addresses[0].Error; err != "link eth9 not found" {
			t.Errorf("status error: %v", err)
		}
		n.setRefuse(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// What could not be bound is not said to be announced before it is.
// A route leads nowhere when its address has been taken away: it goes after a second, and comes back with
// the address.
func TestRouteOfAnAddressThatIsTakenAway(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		n.setTaken(true)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		expect(t, n)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect(t, n, "withdraw 10.99.0.10")
		if a := s.Summary().Addresses[0]; a.Error == "" || a.Blocked.IsZero() {
			t.Errorf("%+v", a)
		}
		n.setTaken(false)
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, n, "announce 10.99.0.10")
	})
}

// A failure that found no address to take away is over at once, not at the
// next drain.
func TestWithdrawalOfAnAddressThatNeverBoundIsDone(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.setRefuse(errors.New("link eth9 not found"))
		healthy(s)
		s.Observe(verdict("apiserver", health.Unhealthy))
		if last := s.Summary().Addresses[0].LastWithdrawal; last == nil || last.Done.IsZero() {
			t.Errorf("last withdrawal: %+v", last)
		}
	})
}

// Addresses go all at once. If that fails only the culprit is tried again.
func TestUnbindFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		dual := vip()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, peers(), unknown())
		healthy(s)
		n.took()
		n.setStuck(v6)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10")
		for _, st := range s.Summary().Addresses {
			if stuck := st.Address == v6; stuck != (st.Error != "") || stuck != st.LastWithdrawal.Done.IsZero() {
				t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
			}
		}
		n.setStuck(netip.Addr{})
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "unbind fd00:99::10")
	})
}

// A route that cannot be withdrawn does not keep the address, and is tried again.
func TestWithdrawalFailureIsRetried(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		n.took()
		n.setDeaf(errors.New("out of memory"))
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "unbind 10.99.0.10")
		if st := s.Summary().Addresses[0]; st.Error == "" || !st.LastWithdrawal.Done.IsZero() {
			t.Errorf("status %+v, last withdrawal %+v", st, st.LastWithdrawal)
		}
		n.setDeaf(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, n, "withdraw 10.99.0.10")
	})
}
