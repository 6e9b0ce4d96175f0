package speaker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// obstacles are what may keep a node from answering, each by what sets it.
func obstacles() map[string]func(*flat, error) {
	return map[string]func(*flat, error){
		"fence not told": func(l *flat, err error) { l.set(func() { l.blind = err }) },
		"fence":          func(l *flat, err error) { l.set(func() { l.jammed = err }) },
		"sockets":        func(l *flat, err error) { l.set(func() { l.mute = err }) },
		"address":        func(l *flat, err error) { l.setRefuse(err) },
	}
}

// A node stands for nothing that it could not answer for: the VIP would move to it, and be lost.
func TestFlatStandsForNothingThatItCannotAnswerFor(t *testing.T) {
	for name, set := range obstacles() {
		t.Run(name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				s.Observe(verdict("registry", health.Unhealthy))
				set(l, errors.New("the kernel is in the way"))
				s.Apply([]speaker.VIP{flatVIP()}, nil, []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Unhealthy)})
				l.took()
				began := time.Now()
				s.Observe(verdict("registry", health.Healthy))
				time.Sleep(5 * time.Second) // it tries every second
				if a := s.Summary().Addresses[0]; a.Error == "" || a.Stage != speaker.Withdrawn || !a.Blocked.Equal(began) {
					t.Errorf("%+v, want what is in the way since %v", a, began)
				}
				for _, did := range l.took() {
					if did != "guard 10.99.0.10" {
						t.Errorf("it did %q", did)
					}
				}
				set(l, nil)
				time.Sleep(time.Second)
				synctest.Wait()
				did := l.took()
				if len(did) == 0 || did[len(did)-1] != "stand for control-plane with 100" {
					t.Errorf("with nothing in the way it did %q", did)
				}
				if a := s.Summary().Addresses[0]; a.Error != "" || !a.Blocked.IsZero() {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// A holder tries for a second to be what it is meant to be, and then leaves the VIP to others.
func TestFlatHolderThatCannotAnswerAnyMore(t *testing.T) {
	for name, set := range map[string]func(*flat, error){
		"address taken away": func(l *flat, err error) { l.setTaken(err != nil) },
		"nothing to be sent": func(l *flat, err error) {
			l.set(func() { l.deaf = err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				if name == "address taken away" {
					l.grant(s)
				}
				set(l, errors.New("the kernel is in the way"))
				resigned := func() bool {
					l.grant(s)
					for _, did := range l.took() {
						if did == "resign from control-plane" {
							return true
						}
					}
					return false
				}
				began := time.Now()
				for !resigned() {
					if time.Since(began) > 2*time.Second {
						t.Fatal("it holds on")
					}
					time.Sleep(lease / 3)
					synctest.Wait()
				}
				if after := time.Since(began); after < time.Second {
					t.Errorf("it gave up after %v", after)
				}
			})
		})
	}
}
