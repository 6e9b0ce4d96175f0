package speaker_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
)

// What may be another's at once must have ended here before.
func TestFlatFailureResignsLast(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "silence 10.99.0.10", "close 10.99.0.10", "resign from control-plane")
	})
}

func TestFlatLeaseThatIsNotRenewed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.lease.Reason, l.lease.Lost = "m2 holds it", "nobody answered" })
		time.Sleep(lease - 1)
		synctest.Wait()
		expect(t, l.node)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect(t, l.node, "unbind 10.99.0.10", "silence 10.99.0.10", "close 10.99.0.10",
			"resign from control-plane", "stand for control-plane with 100")
		if a := s.Summary().Addresses[0]; a.Reason != "m2 holds it" {
			t.Errorf("reason is %q", a.Reason)
		}
		const line = `msg="vip withdrawn" vip=control-plane address=10.99.0.10 reason="lease lost: nobody answered; m2 holds it"`
		if !strings.Contains(l.log.String(), line) {
			t.Errorf("want in the log: %s\n%s", line, &l.log)
		}
		l.set(func() { l.lease.Reason = "m3 holds it" })
		if a := s.Summary().Addresses[0]; a.Reason != "m3 holds it" {
			t.Errorf("reason is %q", a.Reason)
		}
	})
}

// The acceptors may have granted more than the votes that arrived here, so what has
// lapsed is given back, once, as soon as nothing answers for it any more.
func TestFlatGivesBackWhatLapsed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.lease, l.closed = speaker.Lease{}, errors.New("no answer") })
		l.setStuck(v4)
		s.LeasesChanged()
		expect(t, l.node, "silence 10.99.0.10", "close 10.99.0.10")
		l.set(func() { l.closed = nil })
		time.Sleep(lease)
		l.took()
		s.LeasesChanged()
		expect(t, l.node, "close 10.99.0.10", "resign from control-plane", "stand for control-plane with 100")
		s.LeasesChanged()
		expect(t, l.node)
	})
}

// What it holds again by then it keeps.
func TestFlatKeepsWhatItHoldsAgain(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.set(func() { l.lease, l.closed = speaker.Lease{}, errors.New("no answer") })
		l.setStuck(v4)
		s.LeasesChanged()
		l.set(func() { l.closed = nil })
		l.took()
		l.grant(s)
		expect(t, l.node, "proclaim 10.99.0.10")
	})
}

func TestFlatDrainHandsOverAndLingers(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, l.node, "silence 10.99.0.10", "accept 10.99.0.10 for 1.5s", "resign from control-plane",
			"unbind 10.99.0.10", "close 10.99.0.10")
		s.Undrain()
		expect(t, l.node, "stand for control-plane with 100")
	})
}

func TestFlatTransfersTheLease(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.lease.Transfer = "m3 has a higher priority" })
		s.LeasesChanged()
		expect(t, l.node, "silence 10.99.0.10", "accept 10.99.0.10 for 1.5s", "resign from control-plane")
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, l.node, "stand for control-plane with 100", "unbind 10.99.0.10", "close 10.99.0.10")
	})
}

// What lingers when the fence is made anew lingers on.
func TestFlatAcceptsAgainWhatWasClosed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.set(func() { l.lease.Transfer = "m3 has a higher priority" })
		s.LeasesChanged()
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		l.took()
		s.FenceClosed()
		expect(t, l.node, "accept 10.99.0.10 for 1.1s", "stand for control-plane with 100")
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		expect(t, l.node, "unbind 10.99.0.10", "close 10.99.0.10")
	})
}

// Without a fence what is bound is answered for, so it goes before the lease does.
func TestFlatWithoutFenceDoesNotLinger(t *testing.T) {
	runFlat(t, true, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		expect(t, l.node, "bind 10.99.0.10", "proclaim 10.99.0.10")
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, l.node, "unbind 10.99.0.10", "silence 10.99.0.10", "resign from control-plane")
	})
}

// A holder that cannot answer is worse than none: others may be able to.
func TestFlatLeavesWhatItCannotAnswerForToOthers(t *testing.T) {
	for name, refuse := range map[string]struct {
		set  func(*flat, error)
		want []string
	}{
		"fence":   {func(l *flat, err error) { l.set(func() { l.fenced = err }) }, []string{"open 10.99.0.10 for 600ms", "resign from control-plane"}},
		"address": {func(l *flat, err error) { l.setRefuse(err) }, []string{"open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "close 10.99.0.10", "resign from control-plane"}},
	} {
		t.Run(name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				refuse.set(l, errors.New("the kernel is in the way"))
				l.grant(s)
				synctest.Wait()
				expect(t, l.node, refuse.want...)
				if a := s.Summary().Addresses[0]; a.Reason != "left to others for a while: the kernel is in the way" || a.Stage != speaker.Withdrawn {
					t.Errorf("%+v", a)
				}
				refuse.set(l, nil)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				expect(t, l.node, "stand for control-plane with 100")
				l.grant(s)
				expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")
			})
		})
	}
}

// A node that has answered for a VIP once more leaves it to others no longer the next
// time than the first.
func TestFlatForgetsThatItCouldNotAnswer(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		for times := range 3 {
			l.grant(s)
			synctest.Wait()
			if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced {
				t.Fatalf("the %d. time: %+v", times+1, a)
			}
			time.Sleep(lease) // it is lost
			synctest.Wait()
			l.set(func() { l.fenced = errors.New("the kernel is in the way") })
			l.grant(s)
			l.set(func() { l.fenced = nil })
			synctest.Wait()
			l.took()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			expect(t, l.node, "stand for control-plane with 100")
		}
	})
}

// A renewal that the fence refuses once does not give the VIP away.
func TestFlatRenewalRefusedOnce(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		time.Sleep(lease / 3)
		l.set(func() { l.fenced = errors.New("busy") })
		l.grant(s)
		l.set(func() { l.fenced = nil })
		time.Sleep(lease / 3)
		l.took()
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms")
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || a.Error != "" {
			t.Errorf("%+v", a)
		}
	})
}

// A node that is too busy to open the fence in time tries again at each renewal, for a
// second, before it leaves the VIP to others.
func TestFlatLateFence(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		late := func(err error) { l.set(func() { l.fenced = err }) }
		late(fmt.Errorf("open: %w", fence.ErrLate))
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms")
		time.Sleep(lease / 3)
		late(nil)
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")

		late(fmt.Errorf("open: %w", fence.ErrLate))
		for range 2 { // it is open still, and then no more
			time.Sleep(lease / 2)
			l.grant(s)
			l.took()
		}
		for range 3 {
			time.Sleep(lease / 2)
			l.grant(s)
			expect(t, l.node, "open 10.99.0.10 for 600ms")
		}
		time.Sleep(lease / 2)
		l.grant(s)
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "silence 10.99.0.10", "close 10.99.0.10",
			"resign from control-plane")
	})
}

// As long as the kernel may answer, the lease is not released: it can only run out.
func TestFlatDoesNotResignWhileTheFenceIsOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.closed = errors.New("no answer") })
		l.setStuck(v4)
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "silence 10.99.0.10", "close 10.99.0.10")
		time.Sleep(lease - 1)
		synctest.Wait()
		expect(t, l.node)
		time.Sleep(time.Second)
		synctest.Wait()
		expect(t, l.node, "close 10.99.0.10", "resign from control-plane")
	})
}

// Nor while it may answer for one of two addresses.
func TestFlatDoesNotResignWhileOneOfTwoIsOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		dual := flatVIP()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		l.grant(s)
		l.took()
		l.set(func() { l.closed = errors.New("no answer") })
		l.setStuck(v4)
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind fd00:99::10", "silence 10.99.0.10", "silence fd00:99::10", "close 10.99.0.10 fd00:99::10")
	})
}

// Nor while it is in doubt whether it may.
func TestFlatDoesNotResignInDoubt(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.took()
		l.set(func() { l.closed, l.fenced = errors.New("no answer"), errors.New("no buffer space") })
		l.setStuck(v4)
		s.FenceClosed()
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "silence 10.99.0.10", "close 10.99.0.10")
	})
}
