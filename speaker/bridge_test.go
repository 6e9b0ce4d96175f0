package speaker_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// bridge records what it is told among the node's steps.
type bridge struct{ *node }

func (b bridge) Open(until time.Time, addrs ...netip.Addr) {
	b.record("send %s on for %v", list(addrs), time.Until(until))
}
func (b bridge) Close(addrs ...netip.Addr) { b.record("keep %s", list(addrs)) }

func (b bridge) Held(addrs ...netip.Addr) (map[netip.Addr]int, error) {
	b.listings.Add(1)
	defer b.listings.Add(-1)
	time.Sleep(b.listing)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts = append(b.counts, len(addrs))
	held := make(map[netip.Addr]int)
	for _, a := range addrs {
		held[a] = b.held
	}
	return held, b.silent
}

func bridged() speaker.VIP {
	v := vip()
	v.Bridge = true
	return v
}

func TestBridgeOpensAfterTheWithdrawal(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := bridged()
		v.Addresses = append(v.Addresses, v6)
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		n.took()
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10", "unbind fd00:99::10",
			"send 10.99.0.10 fd00:99::10 on for 1m0s")
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, n)
	})
}

// It is closed before the address is served here again, and opened by the next failure.
func TestBridgeClosesBeforeTheReturn(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{bridged()}, peers(), unknown())
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		for range 2 {
			s.Observe(verdict("apiserver", health.Unhealthy))
			expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10", "send 10.99.0.10 on for 1m0s")
			s.Observe(verdict("apiserver", health.Healthy))
			expect(t, n, "keep 10.99.0.10", "bind 10.99.0.10", "announce 10.99.0.10")
		}
	})
}

// What keeps the address or the route where it is does not keep the bridge closed.
func TestBridgeOpensWhateverFails(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{bridged()}, peers(), unknown())
		healthy(s)
		n.took()
		n.setStuck(v4)
		n.setDeaf(errors.New("no session"))
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "send 10.99.0.10 on for 1m0s")
	})
}

// Each step that routers act on opens it; undrained, the node has its connections back.
func TestBridgeOfADrain(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{bridged()}, peers(), unknown())
		healthy(s)
		n.took()
		if err := s.Drain("herald drain", 0)(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, n, "mark 10.99.0.10", "send 10.99.0.10 on for 1m0s",
			"withdraw 10.99.0.10", "send 10.99.0.10 on for 1m0s", "unbind 10.99.0.10")
		s.Undrain()
		expect(t, n, "keep 10.99.0.10", "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

func TestBridgeOfTheLastResort(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := bridged()
		v.OnFailure = speaker.Demote
		s.Apply([]speaker.VIP{v}, peers(), unknown())
		healthy(s)
		n.took()
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "mark 10.99.0.10", "send 10.99.0.10 on for 1m0s")
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "keep 10.99.0.10", "announce 10.99.0.10")
	})
}

// An address that is on another link now is served by this node.
func TestBridgeOfAnAddressThatMoves(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		known := []health.Verdict{verdict("apiserver", health.Healthy), verdict("registry", health.Healthy)}
		s.Apply([]speaker.VIP{bridged()}, peers(), known)
		n.took()
		v := bridged()
		v.Interface = "eth0"
		s.Apply([]speaker.VIP{v}, peers(), known)
		time.Sleep(time.Minute)
		expect(t, n, "bind 10.99.0.10", "unbind 10.99.0.10")
	})
}

func TestBridgeIsSwitchedOff(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		failed := []health.Verdict{verdict("apiserver", health.Unhealthy), verdict("registry", health.Healthy)}
		s.Apply([]speaker.VIP{bridged()}, peers(), unknown())
		healthy(s)
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.took()
		v := bridged()
		v.Bridge = false
		s.Apply([]speaker.VIP{v}, peers(), failed)
		expect(t, n, "keep 10.99.0.10")
	})
}

func bridgedFlat() speaker.VIP {
	v := flatVIP()
	v.Bridge = true
	return v
}

// On a flat layer 2 it opens when the kernel has stopped answering and the lease is given up,
// for what would have been left of it.
func TestFlatBridgeLastsAsLongAsTheLeaseWouldHave(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		s.Apply([]speaker.VIP{bridgedFlat()}, nil, nil)
		healthy(s)
		l.grant(s)
		l.took()
		time.Sleep(100 * time.Millisecond)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "silence 10.99.0.10", "close 10.99.0.10",
			"resign from control-plane", "send 10.99.0.10 on for 500ms")
		s.Observe(verdict("apiserver", health.Healthy))
		l.grant(s)
		expect(t, l.node, "stand for control-plane with 100", "keep 10.99.0.10", "open 10.99.0.10 for 600ms",
			"bind 10.99.0.10", "proclaim 10.99.0.10")
	})
}

func TestFlatBridgeStaysClosed(t *testing.T) {
	tests := []struct {
		name string
		lose func(s *speaker.Speaker, l *flat)
	}{
		{name: "the lease was lost", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.lease = speaker.Lease{Lost: "no majority"} })
			s.LeasesChanged()
		}},
		{name: "the lease ran out", lose: func(s *speaker.Speaker, l *flat) {
			time.Sleep(lease)
			s.LeasesChanged()
		}},
		{name: "the lease was lost, and a check fails", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.lease = speaker.Lease{Lost: "no majority"} })
			s.Observe(verdict("apiserver", health.Unhealthy))
		}},
		{name: "the process stood still", lose: func(s *speaker.Speaker, l *flat) {
			v := verdict("apiserver", health.Unhealthy)
			v.Paused = true
			s.Observe(v)
		}},
		{name: "the fence cannot be opened", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.fenced = errors.New("no table") })
			s.FenceClosed()
			s.LeasesChanged()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				s.Apply([]speaker.VIP{bridgedFlat()}, nil, nil)
				healthy(s)
				l.grant(s)
				l.took()
				tt.lose(s, l)
				if stage := s.Summary().Addresses[0].Stage; stage != speaker.Withdrawn {
					t.Errorf("it is %v", stage)
				}
				for _, step := range l.took() {
					if len(step) > 4 && step[:5] == "send " {
						t.Error(step)
					}
				}
			})
		})
	}
}
