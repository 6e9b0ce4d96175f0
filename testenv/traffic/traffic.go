// Package traffic is a client that connects to a VIP hundreds of times per second, and
// counts its successful and failed connections.
package traffic

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/probe"
	"github.com/herald-vip/herald/testenv/lab"
)

// Options configure the connections.
type Options struct {
	// Timeout bounds a connection. Default: [probe.DefaultTimeout].
	Timeout time.Duration
	// Identify asks each connection which server answered.
	Identify bool
	// On, if set, is called for every connection, with the index of its VIP.
	On func(vip int, a probe.Attempt)
}

// Count holds the results of connections. Inconclusive ones do not count.
type Count struct {
	Attempts int `json:"attempts"`
	// Failures counts by kind of failure, Servers counts the others by server.
	Failures map[string]int `json:"failures"`
	Servers  map[string]int `json:"-"`
	// Longest is the longest outage.
	Longest time.Duration `json:"-"`
}

// Failed returns the number of failed connections.
func (c Count) Failed() (n int) {
	for _, k := range c.Failures {
		n += k
	}
	return n
}

// Client connects from Start until its context ends.
type Client struct {
	running sync.WaitGroup

	mu        sync.Mutex
	count     Count
	row       int           // of successes
	attempted chan struct{} // closed and replaced at every attempt
	results   []*probe.Result
	failed    error
}

// Start connects from the node to the apiserver behind each of the VIPs until ctx ends.
func Start(ctx context.Context, from *lab.Node, o Options, vips ...netip.Addr) *Client {
	c := &Client{attempted: make(chan struct{})}
	c.Mark()
	for i, vip := range vips {
		p := &probe.Prober{
			Target: net.JoinHostPort(vip.String(), "6443"), Timeout: o.Timeout, Identify: o.Identify, Dial: from.DialContext, Keep: -1,
			OnEvent: func(e probe.Event) {
				c.take(e)
				if o.On != nil {
					o.On(i, e.Attempt)
				}
			},
		}
		c.running.Go(func() {
			result, err := p.Run(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.failed = errors.Join(c.failed, err)
				return
			}
			c.results = append(c.results, result)
		})
	}
	return c
}

// Wait returns the results of the whole run, once the context has ended.
func (c *Client) Wait() ([]*probe.Result, error) {
	c.running.Wait()
	return c.results, c.failed
}

func (c *Client) take(e probe.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Attempt.Outcome.Inconclusive() {
		return
	}
	c.count.Attempts++
	if e.Attempt.Outcome.Failed() {
		c.count.Failures[string(e.Attempt.Outcome)]++
		c.row = 0
	} else {
		c.count.Servers[e.Attempt.Server]++
		c.row++
	}
	if e.Outage != nil {
		c.count.Longest = max(c.count.Longest, e.Outage.Duration())
	}
	close(c.attempted)
	c.attempted = make(chan struct{})
}

// Mark resets the count.
func (c *Client) Mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = Count{Failures: make(map[string]int), Servers: make(map[string]int)}
}

// Count returns the results since the last mark.
func (c *Client) Count() Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	n.Failures, n.Servers = maps.Clone(n.Failures), maps.Clone(n.Servers)
	return n
}

// AwaitSuccesses waits for that many successive successes from now on, or until ctx ends.
func (c *Client) AwaitSuccesses(ctx context.Context, successes int) {
	c.mu.Lock()
	c.row = 0
	c.mu.Unlock()
	for {
		c.mu.Lock()
		row, attempted := c.row, c.attempted
		c.mu.Unlock()
		if row >= successes {
			return
		}
		select {
		case <-attempted:
		case <-ctx.Done():
			return
		}
	}
}
