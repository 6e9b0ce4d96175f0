package election

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/testenv/fabric"
	"github.com/herald-vip/herald/testenv/must"
)

// TestStuckHandlerLosesTheLease blocks the holder's handler at a renewal, for a while. Another member
// holds the lease in time, the stuck one never does meanwhile, and is a candidate again afterwards.
func TestStuckHandlerLosesTheLease(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"for 10 s": 10 * time.Second, "for a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
				defer c.watch("vip")()
				c.start("vip")
				first := c.holder("vip")
				c.met()
				d := first.config.Lease
				stuck := make(chan time.Time, 10)
				first.react(func(lease.Event) { stuck <- time.Now(); time.Sleep(lasts) })
				began := <-stuck
				first.react(nil)
				second := c.holder("vip", c.others(first)...)
				if took := time.Since(began); took > d*3/2+100*time.Millisecond {
					t.Errorf("another held the lease after %v", took)
				}
				second.told()
				time.Sleep(lasts / 2)
				if l := first.Lease("vip"); l.Holder == first.name || !strings.Contains(l.Lost, "has not acted on its leases") {
					t.Errorf("the stuck member reports %+v", l)
				}
				time.Sleep(lasts/2 + 10*time.Second)
				if told := second.told(); len(told) > 0 {
					t.Errorf("the next holder received %v", told)
				}
				for _, m := range c.others(first) {
					m.stepDown("vip")
				}
				c.holder("vip", first)
			})
		})
	}
}

// TestSlowHandlerLosesNothing lets the holder's handler take some of a lease for each call.
func TestSlowHandlerLosesNothing(t *testing.T) {
	for _, sixths := range []time.Duration{1, 2, 3, 4, 5} {
		virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
			c.start("vip")
			holder := c.holder("vip")
			takes := holder.config.Lease * sixths / 6
			var calls atomic.Int64
			holder.react(func(lease.Event) {
				calls.Add(1)
				time.Sleep(takes)
			})
			time.Sleep(2 * time.Minute)
			if told, n := holder.told(), calls.Load(); len(told) != 1 || n == 0 || n > int64(2*time.Minute/takes)+1 {
				t.Errorf("with calls of %v the holder received %v, in %d calls", takes, told, n)
			}
			for _, m := range c.others(holder) {
				if told := m.told(); len(told) > 0 {
					t.Errorf("with calls of %v the handler of %s received %v", takes, m.name, told)
				}
			}
			holder.react(nil)
		})
	}
}

// TestStuckAtALoss blocks the handler of a member that has lost the lease. The member holds nothing, not even as the only
// voter, which needs no message for that. It is a candidate again afterwards.
func TestStuckAtALoss(t *testing.T) {
	for _, voters := range []int{1, 3} {
		virtually(t, voters, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
			c.start("vip")
			first := c.holder("vip")
			c.met()
			first.react(func(e lease.Event) {
				if _, ok := e.(lease.Lost); ok {
					time.Sleep(time.Minute)
				}
			})
			first.node.step(func(m *lease.Machine, now time.Time) { m.Tick(now.Add(first.config.Lease)) }) // as after a freeze
			time.Sleep(2 * time.Second)                                                                    // the only voter may win once more before it counts as stuck
			for range 50 {
				time.Sleep(time.Second)
				if l := first.Lease("vip"); l.Holder == first.name {
					t.Fatalf("of %d voters, the stuck one holds the lease until %v", voters, l.Until)
				}
			}
			first.react(nil)
			time.Sleep(20 * time.Second)
			for _, m := range c.others(first) {
				m.stepDown("vip")
			}
			c.holder("vip", first)
		})
	}
}

// TestLeavingWaitsForTheHandler blocks the handler of a member that leaves. The others get the lease afterwards.
func TestLeavingWaitsForTheHandler(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip")
		first := c.holder("vip")
		c.met()
		first.react(func(e lease.Event) {
			if _, ok := e.(lease.Lost); !ok {
				return
			}
			time.Sleep(first.config.Lease / 3)
			for _, m := range c.others(first) {
				if m.holds("vip") {
					t.Errorf("%s holds the lease before the handler has processed the loss", m.name)
				}
			}
		})
		must.Do(t, first.Close())
		c.holder("vip", c.others(first)...)
	})
}

// TestNothingIsSentBeforeALaterLoss loses a second lease while the handler processes the loss of the first.
func TestNothingIsSentBeforeALaterLoss(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip", "other")
		first := c.holder("vip")
		c.met()
		var losses atomic.Int32
		n := first.node
		first.react(func(e lease.Event) {
			if _, ok := e.(lease.Lost); !ok {
				return
			}
			if losses.Add(1) > 1 {
				n.mu.Lock()
				defer n.mu.Unlock()
				if len(n.waiting) == 0 {
					t.Error("what waited for the first loss was sent before the second was known")
				}
				return
			}
			time.Sleep(time.Second)
			n.events.add([]lease.Event{lease.Lost{Lease: "other"}})
		})
		n.events.add([]lease.Event{lease.Lost{Lease: "vip"}})
		time.Sleep(10 * time.Second)
		if count := losses.Load(); count < 2 {
			t.Errorf("%d losses were delivered", count)
		}
	})
}

// TestSuspension lets the holder's computer seem to have been suspended.
func TestSuspension(t *testing.T) {
	virtually(t, 3, nil, func(t *testing.T, _ *fabric.Fabric, c *cluster) {
		c.start("vip")
		first := c.holder("vip")
		c.met()
		first.told()
		n := first.node
		sleep := func(d time.Duration) {
			n.mu.Lock()
			defer n.mu.Unlock()
			slept := n.slept + d
			n.suspended = func() time.Duration { return slept }
		}
		for range 10 {
			sleep(suspensionNoise / 20)
			time.Sleep(first.config.Lease)
		}
		if told := first.told(); len(told) > 0 {
			t.Errorf("without a suspension, the holder received %v", told)
		}
		sleep(2 * suspensionNoise)
		if l := first.Lease("vip"); l.Holder == first.name || l.Lost != "this computer was suspended" {
			t.Errorf("after a suspension, the lease is %+v", l)
		}
		second := c.holder("vip", c.others(first)...)
		second.stepDown("vip")
		for _, m := range c.others(first) {
			m.stepDown("vip")
		}
		c.holder("vip", first) // it has been suspended only once
	})
}
