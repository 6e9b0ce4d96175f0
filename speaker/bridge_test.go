package speaker_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
)

// bridge records its calls among the node's steps.
type bridge struct{ *node }

func (b bridge) Open(until time.Time, addrs ...netip.Addr) {
	b.record("bridge %s for %v", list(addrs), time.Until(until))
}
func (b bridge) Close(addrs ...netip.Addr) { b.record("unbridge %s", list(addrs)) }

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
	return held, b.countErr
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
		serve(s, n, v)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "withdraw 10.99.0.10", "withdraw fd00:99::10", "unbind 10.99.0.10", "unbind fd00:99::10",
			"bridge 10.99.0.10 fd00:99::10 for 1m0s")
		s.Observe(verdict("registry", health.Unhealthy))
		expect(t, n)
	})
}

// The bridge closes before the address is announced here again, and opens at the next failure.
func TestBridgeClosesBeforeTheReturn(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{bridged()}, peers(), unknown())
		healthy(s)
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		for range 2 {
			s.Observe(verdict("apiserver", health.Unhealthy))
			expect(t, n, "withdraw 10.99.0.10", "unbind 10.99.0.10", "bridge 10.99.0.10 for 1m0s")
			s.Observe(verdict("apiserver", health.Healthy))
			expect(t, n, "unbridge 10.99.0.10", "bind 10.99.0.10", "announce 10.99.0.10")
		}
	})
}

// The bridge opens even if the route cannot be withdrawn and the address not removed.
func TestBridgeOpensDespiteErrors(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, bridged())
		n.set(func() { n.stuck = v4 })
		n.set(func() { n.withdrawErr = errors.New("no session") })
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "bridge 10.99.0.10 for 1m0s")
	})
}

// Each step that routers react to opens the bridge. After the drain the node has its connections back.
func TestBridgeOfADrain(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, bridged())
		drain(t, s)
		expect(t, n, "mark 10.99.0.10", "bridge 10.99.0.10 for 1m0s",
			"withdraw 10.99.0.10", "bridge 10.99.0.10 for 1m0s", "unbind 10.99.0.10")
		s.Undrain()
		expect(t, n, "unbridge 10.99.0.10", "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

func TestBridgeOfTheLastResort(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := bridged()
		v.OnFailure = speaker.Demote
		serve(s, n, v)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, n, "mark 10.99.0.10", "bridge 10.99.0.10 for 1m0s")
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n, "unbridge 10.99.0.10", "announce 10.99.0.10")
	})
}

// An address that moves to another link of this node does not open the bridge.
func TestBridgeOfAnAddressThatMoves(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		known := passing()
		s.Apply([]speaker.VIP{bridged()}, peers(), known)
		n.takeSteps()
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
		serve(s, n, bridged())
		s.Observe(verdict("apiserver", health.Unhealthy))
		n.takeSteps()
		v := bridged()
		v.Bridge = false
		s.Apply([]speaker.VIP{v}, peers(), failed)
		expect(t, n, "unbridge 10.99.0.10")
	})
}

func bridgedFlat() speaker.VIP {
	v := flatVIP()
	v.Bridge = true
	return v
}

// On a flat layer 2 the bridge opens after the kernel has stopped answering and the node has stepped down,
// for the rest of the lease.
func TestFlatBridgeLastsAsLongAsTheLeaseWouldHave(t *testing.T) {
	runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
		s.Apply([]speaker.VIP{bridgedFlat()}, nil, nil)
		healthy(s)
		l.acquire(s)
		time.Sleep(100 * time.Millisecond)
		s.Observe(verdict("apiserver", health.Unhealthy))
		expect(t, l.node, "unbind 10.99.0.10", "arp withdraw 10.99.0.10", "close 10.99.0.10",
			"step down from control-plane", "bridge 10.99.0.10 for 500ms")
		s.Observe(verdict("apiserver", health.Healthy))
		l.grant(s)
		expect(t, l.node, "campaign for control-plane with 100", "unbridge 10.99.0.10", "open 10.99.0.10 for 600ms",
			"bind 10.99.0.10", "arp announce 10.99.0.10")
	})
}

func TestFlatBridgeStaysClosed(t *testing.T) {
	tests := []struct {
		name string
		lose func(s *speaker.Speaker, l *flat)
	}{
		{name: "lease lost", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.lease = speaker.Lease{Lost: "no majority"} })
			s.LeasesChanged()
		}},
		{name: "lease expired", lose: func(s *speaker.Speaker, l *flat) {
			time.Sleep(lease)
			s.LeasesChanged()
		}},
		{name: "lease lost, and a check fails", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.lease = speaker.Lease{Lost: "no majority"} })
			s.Observe(verdict("apiserver", health.Unhealthy))
		}},
		{name: "process paused", lose: func(s *speaker.Speaker, l *flat) {
			v := verdict("apiserver", health.Unhealthy)
			v.Paused = true
			s.Observe(v)
		}},
		{name: "fence cannot open", lose: func(s *speaker.Speaker, l *flat) {
			l.set(func() { l.openErr = errors.New("no table") })
			s.FenceClosed()
			s.LeasesChanged()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runFlat(t, false, func(t *testing.T, s *speaker.Speaker, l *flat) {
				s.Apply([]speaker.VIP{bridgedFlat()}, nil, nil)
				healthy(s)
				l.acquire(s)
				tt.lose(s, l)
				if stage := s.Summary().Addresses[0].Stage; stage != speaker.Withdrawn {
					t.Errorf("stage %v, want withdrawn", stage)
				}
				for _, step := range l.takeSteps() {
					if strings.HasPrefix(step, "bridge ") {
						t.Error(step)
					}
				}
			})
		})
	}
}
