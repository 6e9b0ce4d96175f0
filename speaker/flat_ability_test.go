package speaker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// obstacles returns setters of the errors that keep a node from answering.
func obstacles() map[string]func(*flat, error) {
	return map[string]func(*flat, error){
		"filter":  func(l *flat, err error) { l.set(func() { l.filterErr = err }) },
		"fence":   func(l *flat, err error) { l.set(func() { l.tryErr = err }) },
		"sockets": func(l *flat, err error) { l.set(func() { l.arpTryErr = err }) },
		"address": func(l *flat, err error) { l.set(func() { l.bindErr = err }) },
	}
}

// A node that cannot answer for a VIP does not campaign: otherwise the VIP would move to it and fail.
func TestFlatDoesNotCampaignWhenUnable(t *testing.T) {
	for name, set := range obstacles() {
		t.Run(name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				s.Observe(verdict("registry", health.Unhealthy))
				set(l, errors.New("the kernel is in the way"))
				s.Apply([]speaker.VIP{flatVIP()}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Unhealthy)})
				l.takeSteps()
				began := time.Now()
				s.Observe(verdict("registry", health.Healthy))
				time.Sleep(5 * time.Second) // a retry each second
				if a := s.Summary().Addresses[0]; a.Error == "" || a.Stage != speaker.Withdrawn || !a.Blocked.Equal(began) {
					t.Errorf("%+v, want blocked since %v", a, began)
				}
				for _, did := range l.takeSteps() {
					if did != "filter 10.99.0.10" {
						t.Errorf("unexpected step %q", did)
					}
				}
				set(l, nil)
				pass(time.Second)
				did := l.takeSteps()
				if len(did) == 0 || did[len(did)-1] != "campaign for control-plane with 100" {
					t.Errorf("steps %q after the error has ended, want a campaign last", did)
				}
				if a := s.Summary().Addresses[0]; a.Error != "" || !a.Blocked.IsZero() {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// A holder that can no longer answer retries for a second, and then leaves the VIP to others.
func TestFlatUnableHolderStepsDown(t *testing.T) {
	for name, set := range map[string]func(*flat, error){
		"address removed": func(l *flat, err error) { l.set(func() { l.removed = err != nil }) },
		"announcement fails": func(l *flat, err error) {
			l.set(func() { l.announceErr = err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				if name == "address removed" {
					l.grant(s)
				}
				set(l, errors.New("the kernel is in the way"))
				steppedDown := func() bool {
					l.grant(s)
					for _, did := range l.takeSteps() {
						if did == "step down from control-plane" {
							return true
						}
					}
					return false
				}
				began := time.Now()
				for !steppedDown() {
					if time.Since(began) > 2*time.Second {
						t.Fatal("the holder does not step down")
					}
					pass(lease / 3)
				}
				if after := time.Since(began); after < time.Second {
					t.Errorf("the holder stepped down after %v", after)
				}
			})
		})
	}
}
