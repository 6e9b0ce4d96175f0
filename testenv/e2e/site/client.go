//go:build e2e

package site

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/e2e/witness"
)

// Client repeatedly opens connections to one or several addresses.
type Client struct {
	// End ends the client before the test is over.
	End      func()
	witness  *witness.Witness
	mu       sync.Mutex
	attempts []Attempt
}

// Attempt is a completed attempt to connect.
type Attempt struct {
	probe.Attempt
	At time.Time // of its start
}

func (a Attempt) String() string { return fmt.Sprintf("%v at %s", a.Outcome, a.At.Format("05.000")) }

// Connect makes probers connect until the end of the test.
func Connect(t *testing.T, probers ...*probe.Prober) *Client {
	t.Helper()
	c := &Client{witness: StartWitness(t)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, p := range probers {
		began := sync.OnceValue(func() time.Time { return p.Snapshot().Began })
		p.Keep = -1
		p.OnEvent = func(e probe.Event) {
			if !e.Attempt.Outcome.Inconclusive() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.attempts = append(c.attempts, Attempt{e.Attempt, began().Add(e.Attempt.Start)})
			}
		}
		running.Go(func() {
			if _, err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	c.End = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(c.End)
	return c
}

// Since returns the attempts that began after an instant, each prober's in order.
func (c *Client) Since(at time.Time) []Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.attempts), func(a Attempt) bool { return a.At.Before(at) })
}

// Failed returns the failed ones of these.
func (c *Client) Failed(since time.Time) []Attempt {
	return slices.DeleteFunc(c.Since(since), func(a Attempt) bool { return !a.Outcome.Failed() })
}

// GoesOn waits until that many further attempts have begun and ended.
func (c *Client) GoesOn(t *testing.T, many int) {
	t.Helper()
	now := time.Now()
	Eventually(t, Soon, func() error {
		n := len(c.Since(now))
		return ErrorIf(n < many, "%d connections were tried, want %d", n, many)
	})
}

// Starved describes how the machine has starved its processes since an instant, empty if it has
// not.
func (c *Client) Starved(since time.Time) string { return c.witness.Starved(since) }

// None checks that no connection has failed since an instant, out of ten at least.
func (c *Client) None(t *testing.T, since time.Time) {
	t.Helper()
	c.Few(t, since, 0)
}

// Few checks that at most this many connections have failed.
func (c *Client) Few(t *testing.T, since time.Time, most int) {
	t.Helper()
	all, failed := c.Since(since), c.Failed(since)
	if len(failed) > most || len(all) < 10 {
		FailTiming(t, c.Starved(since), "of %d connections %d failed: %v", len(all), len(failed), failed)
	}
}

// Connect connects to both addresses of the VIP from c1 until the end of the test.
func (f *Flat) Connect(t *testing.T) *Client {
	t.Helper()
	var probers []*probe.Prober
	for _, vip := range f.Vips() {
		probers = append(probers, &probe.Prober{
			Target: net.JoinHostPort(vip.String(), "6443"), Dial: f.Node("c1").DialContext,
			// For a busy machine.
			Interval: 10 * time.Millisecond, Timeout: 500 * time.Millisecond,
		})
	}
	return Connect(t, probers...)
}
