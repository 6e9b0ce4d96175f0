package speaker_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// runKept gives f the holder of a VIP that it keeps, as it fails slowly.
func runKept(t *testing.T, f func(t *testing.T, s *speaker.Speaker, l *flat, v speaker.VIP)) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		v := flatVIP()
		v.Keep, v.HoldDown = true, 10*time.Second
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		l.grant(s)
		s.Observe(slow("apiserver"))
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept {
			t.Fatalf("%+v", a)
		}
		l.took()
		f(t, s, l, v)
	})
}

// An address that comes to a VIP while it is kept was never healthy here: it waits until the checks pass.
func TestFlatKeepsWhatWasHealthy(t *testing.T) {
	runKept(t, func(t *testing.T, s *speaker.Speaker, l *flat, v speaker.VIP) {
		v.Addresses = []netip.Addr{v6, v4}
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		expect(t, l.node, "guard fd00:99::10 10.99.0.10", "unbind fd00:99::10")
		if all := s.Summary().Addresses; all[0].Stage != speaker.Withdrawn || all[0].Kept || all[1].Stage != speaker.Announced || !all[1].Kept {
			t.Errorf("%+v", all)
		}
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, l.node, "open fd00:99::10 for 600ms", "bind fd00:99::10", "proclaim fd00:99::10")
		s.Observe(slow("apiserver"))
		if all := s.Summary().Addresses; !all[0].Kept || !all[1].Kept {
			t.Errorf("%+v", all)
		}
	})
}

// A node that only stands for the VIP keeps what it stood for, and nothing that came to it since.
func TestFlatStandsForWhatWasHealthy(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		v := flatVIP()
		v.Keep = true
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)})
		s.Observe(slow("apiserver"))
		v.Addresses = []netip.Addr{v6, v4}
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		l.took()
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")
	})
}

// A holder that keeps a VIP and cannot answer for it leaves it to others for a while, as any other.
func TestFlatKeptHolderBacksOff(t *testing.T) {
	runKept(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		l.setTaken(true)
		for range 5 { // for a second it may come back
			l.grant(s)
			time.Sleep(lease / 2)
			synctest.Wait()
		}
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Withdrawn || a.Kept {
			t.Errorf("%+v", a)
		}
		l.setTaken(false)
		l.took()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect(t, l.node, "stand for control-plane with 100")
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "proclaim 10.99.0.10")
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept {
			t.Errorf("%+v", a)
		}
	})
}

// That it cannot answer, or loses the lease, again and again is no failure of the checks: who holds the lease is not held down.
func TestFlatKeptHolderIsNotHeldDown(t *testing.T) {
	runKept(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		for times := range 3 {
			time.Sleep(lease) // it is lost
			synctest.Wait()
			l.grant(s)
			if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept || a.LastWithdrawal != nil {
				t.Fatalf("the %d. time: %+v", times+1, a)
			}
		}
	})
}

// The log says of a holder when it keeps the VIP, and when it does no longer.
func TestFlatLogsKeeping(t *testing.T) {
	runKept(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		s.Observe(verdict("apiserver", health.Healthy))
		for _, line := range []string{
			`level=WARN msg="vip kept as the last resort" vip=control-plane address=10.99.0.10 reason="kept as the last resort, since no other member is known to serve it: apiserver: because"`,
			`level=INFO msg="vip no longer the last resort" vip=control-plane address=10.99.0.10 reason="apiserver, registry healthy"`,
		} {
			if strings.Count(l.log.String(), line) != 1 {
				t.Errorf("want once in the log: %s\n%s", line, &l.log)
			}
		}
		l.log.Reset()
		s.Observe(slow("apiserver"))
		s.Observe(verdict("registry", health.Unhealthy)) // refused
		if log := l.log.String(); strings.Contains(log, "no longer the last resort") || !strings.Contains(log, "vip withdrawn") {
			t.Error(log)
		}
	})
}
