package speaker_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/netutil/fence"
	"github.com/herald-vip/herald/speaker"
)

// The node steps down only after it has stopped answering, since another node may have the lease at once.
func TestFlatFailureStepsDownLast(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "close 10.99.0.10", "step down from control-plane")
	})
}

func TestFlatLeaseExpires(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.lease.Reason, l.lease.Lost = "m2 holds it", "nobody answered" })
		pass(lease - 1)
		expect(t, l.node)
		pass(time.Nanosecond)
		expect(t, l.node, "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "close 10.99.0.10",
			"step down from control-plane", "campaign for control-plane with 100")
		if a := s.Summary().Addresses[0]; a.Reason != "m2 holds it" {
			t.Errorf("reason is %q", a.Reason)
		}
		const line = `msg="vip withdrawn" vip=control-plane address=10.99.0.10 reason="lease lost: nobody answered; m2 holds it"`
		if !strings.Contains(l.log.String(), line) {
			t.Errorf("want %s in the log:\n%s", line, &l.log)
		}
		l.set(func() { l.lease.Reason = "m3 holds it" })
		if a := s.Summary().Addresses[0]; a.Reason != "m3 holds it" {
			t.Errorf("reason is %q", a.Reason)
		}
	})
}

// The voters may have granted more than the votes received here. So the node steps down once after a lapse, as
// soon as the kernel has stopped answering.
func TestFlatStepsDownAfterALapse(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.lease, l.closeErr = speaker.Lease{}, errors.New("no answer"); l.stuck = v4 })
		s.LeasesChanged()
		expect(t, l.node, "arp withdraw 10.99.0.10", "close 10.99.0.10")
		l.set(func() { l.closeErr = nil })
		time.Sleep(lease)
		l.takeSteps()
		s.LeasesChanged()
		expect(t, l.node, "close 10.99.0.10", "step down from control-plane", "campaign for control-plane with 100")
		s.LeasesChanged()
		expect(t, l.node)
	})
}

// A node that has the lease again before it stepped down keeps it.
func TestFlatKeepsARegainedLease(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.set(func() { l.lease, l.closeErr = speaker.Lease{}, errors.New("no answer"); l.stuck = v4 })
		s.LeasesChanged()
		l.set(func() { l.closeErr = nil })
		l.takeSteps()
		l.grant(s)
		expect(t, l.node, "arp announce 10.99.0.10")
	})
}

func TestFlatDrainStepsDownAndLingers(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		drain(t, s)
		expect(t, l.node, "arp withdraw 10.99.0.10", "accept 10.99.0.10 for 1.5s", "step down from control-plane",
			"unbind 10.99.0.10", "close 10.99.0.10")
		s.Undrain()
		expect(t, l.node, "campaign for control-plane with 100")
	})
}

func TestFlatTransfersTheLease(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.lease.Transfer = "m3 has a higher priority" })
		s.LeasesChanged()
		expect(t, l.node, "arp withdraw 10.99.0.10", "accept 10.99.0.10 for 1.5s", "step down from control-plane")
		pass(time.Second)
		expect(t, l.node, "campaign for control-plane with 100", "unbind 10.99.0.10", "close 10.99.0.10")
	})
}

// A lingering address goes on lingering after the fence was recreated.
func TestFlatAcceptsAgainAfterTheFenceClosed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		l.set(func() { l.lease.Transfer = "m3 has a higher priority" })
		s.LeasesChanged()
		pass(400 * time.Millisecond)
		l.takeSteps()
		s.FenceClosed()
		expect(t, l.node, "accept 10.99.0.10 for 1.1s", "campaign for control-plane with 100")
		pass(600 * time.Millisecond)
		expect(t, l.node, "unbind 10.99.0.10", "close 10.99.0.10")
	})
}

// Without a fence the kernel answers for each bound address, so the address is removed before the node steps down.
func TestFlatWithoutFenceDoesNotLinger(t *testing.T) {
	runFlat(t, true, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		expect(t, l.node, "bind 10.99.0.10", "arp announce 10.99.0.10")
		drain(t, s)
		expect(t, l.node, "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "step down from control-plane")
	})
}

// A holder that cannot answer leaves the VIP to the other nodes.
func TestFlatBacksOffWhenUnable(t *testing.T) {
	for name, refuse := range map[string]struct {
		set  func(*flat, error)
		want []string
	}{
		"fence":   {func(l *flat, err error) { l.set(func() { l.openErr = err }) }, []string{"open 10.99.0.10 for 600ms", "step down from control-plane"}},
		"address": {func(l *flat, err error) { l.set(func() { l.bindErr = err }) }, []string{"open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "close 10.99.0.10", "step down from control-plane"}},
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
				pass(2 * time.Second)
				expect(t, l.node, "campaign for control-plane with 100")
				l.grant(s)
				expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")
			})
		})
	}
}

// The backoff starts again at its first length after the node has answered for the VIP.
func TestFlatResetsTheBackoff(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		for times := range 3 {
			l.grant(s)
			synctest.Wait()
			if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced {
				t.Fatalf("round %d: %+v", times+1, a)
			}
			pass(lease) // the lease expires
			l.set(func() { l.openErr = errors.New("the kernel is in the way") })
			l.grant(s)
			l.set(func() { l.openErr = nil })
			synctest.Wait()
			l.takeSteps()
			pass(2 * time.Second)
			expect(t, l.node, "campaign for control-plane with 100")
		}
	})
}

// One renewal that the fence refuses does not cost the VIP.
func TestFlatRenewalRefusedOnce(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.grant(s)
		time.Sleep(lease / 3)
		l.set(func() { l.openErr = errors.New("busy") })
		l.grant(s)
		l.set(func() { l.openErr = nil })
		time.Sleep(lease / 3)
		l.takeSteps()
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
		late := func(err error) { l.set(func() { l.openErr = err }) }
		late(fmt.Errorf("open: %w", fence.ErrLate))
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms")
		time.Sleep(lease / 3)
		late(nil)
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")

		late(fmt.Errorf("open: %w", fence.ErrLate))
		for range 2 { // the fence stays open for one of them
			time.Sleep(lease / 2)
			l.acquire(s)
		}
		for range 3 {
			time.Sleep(lease / 2)
			l.grant(s)
			expect(t, l.node, "open 10.99.0.10 for 600ms")
		}
		time.Sleep(lease / 2)
		l.grant(s)
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "close 10.99.0.10",
			"step down from control-plane")
	})
}

// While the kernel may answer, the node does not step down: the lease can only expire.
func TestFlatDoesNotStepDownWhileTheFenceIsOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.closeErr = errors.New("no answer"); l.stuck = v4 })
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "arp withdraw 10.99.0.10", "close 10.99.0.10")
		pass(lease - 1)
		expect(t, l.node)
		pass(time.Second)
		expect(t, l.node, "close 10.99.0.10", "step down from control-plane")
	})
}

// The node does not step down while the kernel may answer for one of two addresses.
func TestFlatDoesNotStepDownWhileOneOfTwoIsOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		dual := flatVIP()
		dual.Addresses = []netip.Addr{v4, v6}
		s.Apply([]speaker.VIP{dual}, nil, passing())
		l.acquire(s)
		l.set(func() { l.closeErr = errors.New("no answer"); l.stuck = v4 })
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, l.node, "unbind fd00:99::10", "arp withdraw 10.99.0.10", "arp withdraw fd00:99::10", "close 10.99.0.10 fd00:99::10")
	})
}

// The fence of an address stays open when the address moves to another link. The node does not step down while it is.
func TestFlatDoesNotStepDownWhileTheFenceOfAMovedAddressIsOpen(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.closeErr, l.openErr = errors.New("no answer"), errors.New("no answer"); l.stuck = v4 })
		moved := flatVIP()
		moved.Interface = "eth1"
		s.Apply([]speaker.VIP{moved}, nil, passing())
		s.Observe(verdict("registry", health.Unhealthy))
		steppedDown := func() bool {
			return slices.ContainsFunc(l.takeSteps(), func(did string) bool { return strings.HasPrefix(did, "step down") })
		}
		pass(lease - 1)
		if steppedDown() {
			t.Error("the node steps down while the kernel may answer")
		}
		pass(time.Second)
		if !steppedDown() {
			t.Error("the node does not step down after the end of its lease")
		}
	})
}

// The node does not step down while the fence is unconfirmed.
func TestFlatDoesNotStepDownWhileUnconfirmed(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		l.acquire(s)
		l.set(func() { l.closeErr, l.openErr = errors.New("no answer"), errors.New("no buffer space"); l.stuck = v4 })
		s.FenceClosed()
		synctest.Wait()
		expect(t, l.node, "open 10.99.0.10 for 600ms", "arp withdraw 10.99.0.10", "close 10.99.0.10")
	})
}
