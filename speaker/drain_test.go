package speaker_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herald-vip/herald/health"
	"github.com/herald-vip/herald/speaker"
	"github.com/herald-vip/herald/testenv/must"
)

func TestDrainGoesInOrder(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		start := time.Now()
		drain(t, s)
		expect(t, n, "mark 10.99.0.10", "withdraw 10.99.0.10", "unbind 10.99.0.10")
		if took := time.Since(start); took != 1500*time.Millisecond {
			t.Errorf("drain took %v, want notice and linger", took)
		}
		s.Observe(verdict("apiserver", health.Healthy))
		expect(t, n)
		s.Undrain()
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
	})
}

// A drain with a deadline keeps an address while other members forward packets of a connection to it, until the deadline.
func TestDrainWaitsForConnections(t *testing.T) {
	type drain struct{ after, wait time.Duration }
	for name, tt := range map[string]struct {
		linger    time.Duration
		unbridged bool
		countErr  error
		ends      time.Duration // end of the connection
		again     *drain
		took      time.Duration
	}{
		"no connection":              {linger: time.Second, took: 1500 * time.Millisecond},
		"connection ends":            {linger: time.Second, ends: 9500 * time.Millisecond, took: 10 * time.Second},
		"connection ends in linger":  {linger: 20 * time.Second, ends: 10 * time.Second, took: 20500 * time.Millisecond},
		"connection stays":           {linger: time.Second, ends: time.Hour, took: time.Minute},
		"no linger, no connection":   {took: 500 * time.Millisecond},
		"no linger, connection ends": {ends: 9500 * time.Millisecond, took: 10 * time.Second},
		"no bridge":                  {linger: time.Second, unbridged: true, ends: time.Hour, took: 1500 * time.Millisecond},
		"count fails":                {linger: time.Second, countErr: errors.New("no right"), took: time.Minute},
		"no bridge, count fails":     {linger: time.Second, unbridged: true, countErr: errors.New("no right"), took: 1500 * time.Millisecond},
		"drained again":              {linger: time.Second, ends: time.Hour, again: &drain{after: 10 * time.Second}, took: 10 * time.Second},
		"drained again, for shorter": {linger: time.Second, ends: time.Hour, again: &drain{10 * time.Second, 20 * time.Second}, took: 30 * time.Second},
		"drained again, for longer":  {linger: time.Second, ends: time.Hour, again: &drain{10 * time.Second, time.Minute}, took: 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
				v := bridged()
				v.Bridge, v.Linger = !tt.unbridged, tt.linger
				serve(s, n, v)
				n.set(func() { n.countErr = tt.countErr })
				if tt.ends > 0 {
					n.set(func() { n.held = 1 })
					defer time.AfterFunc(tt.ends, func() { n.set(func() { n.held = 0 }) }).Stop()
				}
				if tt.again != nil {
					time.AfterFunc(tt.again.after, func() { s.Drain("herald is stopping", tt.again.wait) })
				}
				start := time.Now()
				must.Do(t, s.Drain("herald drain", time.Minute)(t.Context()))
				if took := time.Since(start); took != tt.took {
					t.Errorf("drain took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// The kernel may list its sockets slowly. A withdrawal does not wait for the list.
func TestWithdrawalDoesNotWaitForTheCount(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, bridged())
		n.set(func() { n.held = 1 })
		n.listing = 5 * time.Second
		s.Drain("herald drain", time.Minute)
		synctest.Wait()
		start := time.Now()
		s.Observe(verdict("apiserver", health.Unhealthy))
		if took := time.Since(start); took != 0 {
			t.Errorf("the withdrawal waited %v for the count", took)
		}
		expect(t, n, "mark 10.99.0.10", "bridge 10.99.0.10 for 1m0s", "withdraw 10.99.0.10", "unbind 10.99.0.10", "bridge 10.99.0.10 for 1m0s")
		if n.listings.Load() != 1 {
			t.Error("no count is running")
		}
	})
}

// The list of sockets may be long: it is read once a second for all addresses, even with more frequent decisions.
func TestDrainCountsConnectionsOnceASecond(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		v := bridged()
		v.Addresses = []netip.Addr{v4, v6}
		serve(s, n, v)
		n.set(func() { n.held = 1 })
		drained := s.Drain("herald drain", 10*time.Second)
		for range 99 {
			time.Sleep(100 * time.Millisecond)
			healthy(s)
		}
		must.Do(t, drained(t.Context()))
		if len(n.counts) > 10 || slices.Max(n.counts) != 2 {
			t.Errorf("%d counts of %v addresses, want at most 10 of 2", len(n.counts), n.counts)
		}
	})
}

func TestUndrainRemovesTheMark(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := s.Drain("herald drain", 0)(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("drain: %v", err)
		}
		s.Undrain()
		pass(time.Minute)
		expect(t, n, "mark 10.99.0.10", "announce 10.99.0.10")
	})
}

// A drain does not wait for an address that was never bound.
func TestDrainOfUnboundAddress(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		n.set(func() { n.bindErr = errors.New("no right") })
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		healthy(s)
		start := time.Now()
		if err := s.Drain("upgrade", 0)(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("drained after %v: %v", time.Since(start), err)
		}
		expect(t, n, "unbind 10.99.0.10")
		n.set(func() { n.bindErr = nil })
		s.Undrain()
		expect(t, n, "bind 10.99.0.10", "announce 10.99.0.10")
		if err := s.Drain("upgrade", 0)(t.Context()); err != nil || time.Since(start) < vip().Linger {
			t.Errorf("drained after %v: %v; want a linger", time.Since(start), err)
		}
	})
}

// A drain does not wait if failed checks or an earlier drain have withdrawn everything.
func TestDrainOfNothingReturnsAtOnce(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		s.Apply([]speaker.VIP{vip()}, peers(), unknown())
		s.Observe(verdict("apiserver", health.Unhealthy))
		start := time.Now()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := s.Drain("herald drain", 0)(ctx); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("drain took %v", took)
		}
	})
}

// Undrain ends the wait for a drain with an error.
func TestUndrainEndsTheWaitForADrain(t *testing.T) {
	run(t, func(t *testing.T, s *speaker.Speaker, n *node) {
		serve(s, n, vip())
		drained := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { drained <- s.Drain("herald drain", 0)(ctx) }()
		synctest.Wait()
		s.Undrain()
		if err := <-drained; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
	})
}
