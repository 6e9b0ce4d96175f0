// Package arrivals counts the connections that others begin to addresses of this node. What a
// router does with a route that it was sent shows in them, and in nothing else here. They are
// counted by rules of nftables in a table of their own, which change no packet. Others are all
// whose packets come by a link other than lo and [link.TunnelName]: pods of this node, too.
package arrivals

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// interval is how often the kernel's counters are read.
const interval = 10 * time.Second

// Count is what came to an address.
type Count struct {
	// Arrived is how many first packets of TCP connections came. One that was sent again counts again.
	Arrived uint64
	// Since is from when on they are counted without a gap; zero if they are not.
	Since time.Time
	// Last is when one was last known to have come, ten seconds late at most; zero if none has.
	Last time.Time
}

// Counter counts for one process. Its methods may be called from any goroutine.
type Counter struct {
	log     *slog.Logger
	changed chan struct{}

	calls ruleset.Calls
	fault ruleset.Fault // of the goroutine of Run

	// Of the call that is under way.
	socket ruleset.Socket
	made   bool // there may be a table, from an earlier process at first
	seen   map[netip.Addr]uint64

	mu     sync.Mutex
	addrs  []netip.Addr
	counts map[netip.Addr]Count
}

// New returns a Counter for no addresses yet. netns is as in [ruleset.Socket].
func New(log *slog.Logger, netns int) *Counter {
	return &Counter{
		log: log, changed: make(chan struct{}, 1), calls: ruleset.NewCalls(ruleset.AnswerTimeout),
		socket: ruleset.Socket{NetNS: netns}, made: true, seen: make(map[netip.Addr]uint64), counts: make(map[netip.Addr]Count),
	}
}

// Set makes these the addresses that are counted. What was counted for others is forgotten.
func (c *Counter) Set(addrs []netip.Addr) {
	c.mu.Lock()
	c.addrs = slices.Clone(addrs)
	maps.DeleteFunc(c.counts, func(addr netip.Addr, _ Count) bool { return !slices.Contains(addrs, addr) })
	c.mu.Unlock()
	wake.Up(c.changed)
}

// Count is what came to addr. It is not known of an address that is not counted, nor while nftables fails.
func (c *Counter) Count(addr netip.Addr) (n Count, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = c.counts[addr]
	return n, !n.Since.IsZero()
}

// Run counts until ctx is done, and takes the table away. It tries again what fails, and logs that once.
func (c *Counter) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := c.calls.Do(func() error { return c.look(time.Now()) })
		if err != nil {
			c.count(time.Time{})
		}
		c.fault.Log(c.log, err, "connections to VIPs are not counted", "connections to VIPs are counted again")
		select {
		case <-ctx.Done():
			_ = c.calls.Do(func() error { defer c.socket.Close(); return c.remove() }) // a table that is left changes no packet
			return
		case <-c.changed:
		case <-tick.C:
		}
	}
}

// look reads what was counted, and makes the table if it does not count for the addresses.
func (c *Counter) look(now time.Time) error {
	c.mu.Lock()
	addrs := slices.Clone(c.addrs)
	c.mu.Unlock()
	if len(addrs) == 0 {
		_ = c.remove() // without VIPs it does not matter
		return nil
	}
	want := rules(addrs)
	if c.made {
		have, err := c.read()
		if err != nil {
			return err
		}
		if slices.EqualFunc(have, want, func(a, b ruleset.Rule) bool { return a.Chain == b.Chain && a.Same(b) }) {
			c.note(have, now)
			c.count(now)
			return nil
		}
	}
	c.count(time.Time{})
	if err := c.replace(want); err != nil {
		return err
	}
	c.made, c.seen = true, make(map[netip.Addr]uint64)
	c.count(now)
	return nil
}

// count has those addresses counted from now on that are not counted yet; zero ends it for all.
func (c *Counter) count(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, addr := range c.addrs {
		if n := c.counts[addr]; now.IsZero() || n.Since.IsZero() {
			n.Since = now
			c.counts[addr] = n
		}
	}
}

// note adds what the rules have counted since they were last read.
func (c *Counter) note(have []ruleset.Rule, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range have {
		addr, err := netip.ParseAddr(r.Comment)
		n, counted := c.counts[addr]
		if err != nil || !counted || r.Packets == c.seen[addr] {
			continue
		}
		if r.Packets < c.seen[addr] { // somebody has set it back
			c.seen[addr] = 0
		}
		n.Arrived, n.Last = n.Arrived+r.Packets-c.seen[addr], now
		c.counts[addr], c.seen[addr] = n, r.Packets
	}
}
