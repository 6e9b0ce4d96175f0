//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/probe"
)

// client connects to both addresses of a flat lab's VIP from c1, again and again.
type client struct {
	mu       sync.Mutex
	attempts int
	failures map[probe.Outcome]int
	outage   time.Duration
}

// connect connects until the end of the test.
func (f *flat) connect(t *testing.T) *client {
	t.Helper()
	c := &client{failures: make(map[probe.Outcome]int)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, vip := range f.vips() {
		p := &probe.Prober{
			Target: net.JoinHostPort(vip.String(), "6443"), Dial: f.Node("c1").DialContext, Keep: -1,
			// For a machine that is busy.
			Interval: 10 * time.Millisecond, Timeout: 500 * time.Millisecond,
			OnEvent: c.take,
		}
		running.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

func (c *client) take(e probe.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Attempt.Outcome.Inconclusive() {
		return
	}
	c.attempts++
	if e.Attempt.Outcome.Failed() {
		c.failures[e.Attempt.Outcome]++
	}
	if e.Outage != nil {
		c.outage = max(c.outage, e.Outage.Duration())
	}
}

// mark returns the longest outage so far, and begins to count anew.
func (c *client) mark() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	outage := c.outage.Round(time.Millisecond)
	c.attempts, c.outage = 0, 0
	clear(c.failures)
	return outage
}

// failed counts the connections that failed.
func (c *client) failed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.failures {
		n += k
	}
	return n
}

// none wants no connection to have failed, of a hundred at least.
func (c *client) none(t *testing.T) {
	t.Helper()
	c.few(t, 0)
}

// few wants no more than so many connections to have failed, of a hundred at least.
func (c *client) few(t *testing.T, most int) {
	t.Helper()
	failed := c.failed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed > most || c.attempts < 100 {
		t.Errorf("%d connections, of which failed: %v", c.attempts, c.failures)
	}
}

// works waits for a hundred connections more.
func (c *client) works(t *testing.T) {
	t.Helper()
	count := func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.attempts }
	want := count() + 100
	eventually(t, soon, func() error {
		if count() < want {
			return fmt.Errorf("%d connections were made, want %d", count(), want)
		}
		return nil
	})
}
