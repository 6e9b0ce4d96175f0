package speaker_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// runLastResort calls f with the holder of a slowly failing VIP.
func runLastResort(t *testing.T, f func(t *testing.T, s *speaker.Speaker, l *flat, v speaker.VIP)) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		v := flatVIP()
		v.Keep, v.HoldDown = true, 10*time.Second
		s.Apply([]speaker.VIP{v}, nil, passing())
		l.grant(s)
		s.Observe(slow("apiserver"))
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept {
			t.Fatalf("%+v", a)
		}
		l.takeSteps()
		f(t, s, l, v)
	})
}

// An address added to a last-resort VIP was never healthy here: it waits until the checks pass.
func TestFlatLastResortKeepsHealthyAddresses(t *testing.T) {
	runLastResort(t, func(t *testing.T, s *speaker.Speaker, l *flat, v speaker.VIP) {
		v.Addresses = []netip.Addr{v6, v4}
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		expect(t, l.node, "filter fd00:99::10 10.99.0.10", "unbind fd00:99::10")
		if all := s.Summary().Addresses; all[0].Stage != speaker.Withdrawn || all[0].Kept || all[1].Stage != speaker.Announced || !all[1].Kept {
			t.Errorf("%+v", all)
		}
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, l.node, "open fd00:99::10 for 600ms", "bind fd00:99::10", "arp announce fd00:99::10")
		s.Observe(slow("apiserver"))
		if all := s.Summary().Addresses; !all[0].Kept || !all[1].Kept {
			t.Errorf("%+v", all)
		}
	})
}

// A candidate that fails slowly stays a candidate for its address, and not for one added since.
func TestFlatLastResortCandidate(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		v := flatVIP()
		v.Keep = true
		s.Apply([]speaker.VIP{v}, nil, passing())
		s.Observe(slow("apiserver"))
		v.Addresses = []netip.Addr{v6, v4}
		s.Apply([]speaker.VIP{v}, nil, []health.Verdict{slow("apiserver"), verdict("registry", health.Healthy)})
		l.takeSteps()
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")
	})
}

// A last-resort holder that cannot answer leaves the VIP to others for a while, like any holder.
func TestFlatLastResortHolderBacksOff(t *testing.T) {
	runLastResort(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		l.set(func() { l.removed = true })
		for range 5 { // the holder retries for a second
			l.grant(s)
			pass(lease / 2)
		}
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Withdrawn || a.Kept {
			t.Errorf("%+v", a)
		}
		l.set(func() { l.removed = false })
		l.takeSteps()
		pass(2 * time.Second)
		expect(t, l.node, "campaign for control-plane with 100")
		l.grant(s)
		expect(t, l.node, "open 10.99.0.10 for 600ms", "bind 10.99.0.10", "arp announce 10.99.0.10")
		if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept {
			t.Errorf("%+v", a)
		}
	})
}

// Repeated loss of the lease is not a failure of the checks: a last-resort holder is not held down.
func TestFlatLastResortHolderIsNotHeldDown(t *testing.T) {
	runLastResort(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		for times := range 3 {
			pass(lease) // the lease expires
			l.grant(s)
			if a := s.Summary().Addresses[0]; a.Stage != speaker.Announced || !a.Kept || a.LastWithdrawal != nil {
				t.Fatalf("round %d: %+v", times+1, a)
			}
		}
	})
}

// The log reports when a holder becomes the last resort, and when it no longer is.
func TestFlatLogsLastResort(t *testing.T) {
	runLastResort(t, func(t *testing.T, s *speaker.Speaker, l *flat, _ speaker.VIP) {
		s.Observe(verdict("apiserver", health.Healthy))
		for _, line := range []string{
			`level=WARN msg="vip kept as the last resort" vip=control-plane address=10.99.0.10 reason="kept as the last resort, since no other member is known to serve it: apiserver: because"`,
			`level=INFO msg="vip no longer the last resort" vip=control-plane address=10.99.0.10 reason="apiserver, registry healthy"`,
		} {
			if strings.Count(l.log.String(), line) != 1 {
				t.Errorf("want one line %s in the log:\n%s", line, &l.log)
			}
		}
		l.log.Reset()
		s.Observe(slow("apiserver"))
		s.Observe(verdict("registry", health.Unhealthy)) // not slowly
		if log := l.log.String(); strings.Contains(log, "no longer the last resort") || !strings.Contains(log, "vip withdrawn") {
			t.Error(log)
		}
	})
}
