// Package newconns counts the new TCP connections to addresses of this node: the traffic that a router sends for an
// advertised route. Rules in an nftables table of its own count them and change no packet. They count connections that
// arrive on any link except lo and [link.TunnelName], including connections of pods on this node.
package newconns

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/internal/wake"
	"github.com/herald-vip/herald/netutil/link"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// interval is the time between two readings of the kernel's counters.
const interval = 10 * time.Second

// Count holds the new connections to one address.
type Count struct {
	// Arrived counts the first packets of TCP connections, retransmissions included.
	Arrived uint64 `json:"count"`
	// Since is the start of counting without a gap; zero while nothing is counted.
	Since time.Time `json:"since"`
	// Last is the time of the last increase, up to ten seconds late; zero if there was none.
	Last time.Time `json:"last,omitzero"`
}

// Counter counts new connections. Any goroutine may call its methods.
type Counter struct {
	log     *slog.Logger
	changed chan struct{}
	keeper  *ruleset.Keeper

	// Used only by the current call to the kernel.
	socket ruleset.Socket
	made   bool // the table may exist; true at first, as an earlier process may have left it
	seen   map[netip.Addr]uint64

	mu     sync.Mutex
	addrs  []netip.Addr
	counts map[netip.Addr]Count
}

// New returns a Counter without addresses. For netns see [ruleset.Socket].
func New(log *slog.Logger, netns int) *Counter {
	return &Counter{
		log: log, changed: make(chan struct{}, 1), keeper: ruleset.NewKeeper(ruleset.AnswerTimeout),
		socket: ruleset.Socket{NetNS: netns}, made: true, seen: make(map[netip.Addr]uint64), counts: make(map[netip.Addr]Count),
	}
}

// Set replaces the addresses to count for. It forgets the counts of all others.
func (c *Counter) Set(addrs []netip.Addr) {
	c.mu.Lock()
	c.addrs = slices.Clone(addrs)
	maps.DeleteFunc(c.counts, func(addr netip.Addr, _ Count) bool { return !slices.Contains(addrs, addr) })
	c.mu.Unlock()
	wake.Up(c.changed)
}

// Count returns the new connections to addr. It reports false for addresses that are not in Set, and while
// nftables fails.
func (c *Counter) Count(addr netip.Addr) (n Count, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = c.counts[addr]
	return n, !n.Since.IsZero()
}

// Run counts until ctx is done, then removes the table. It retries after errors and logs each once.
func (c *Counter) Run(ctx context.Context) {
	c.keeper.Run(ctx, c.log, ruleset.Rounds{
		Round: c.round, Every: interval, Wake: c.changed,
		Failed: "cannot count connections to VIPs", Recovered: "connections to VIPs are counted again",
	})
	_ = c.keeper.Call(func() error { c.remove(); c.socket.Close(); return nil })
}

func (c *Counter) round(bool) error {
	err := c.keeper.Call(func() error { return c.look(time.Now()) })
	if err != nil {
		c.count(time.Time{})
	}
	return err
}

// look reads the counters. It makes the table anew if it does not count exactly for the addresses.
func (c *Counter) look(now time.Time) error {
	c.mu.Lock()
	addrs := slices.Clone(c.addrs)
	c.mu.Unlock()
	if len(addrs) == 0 {
		c.remove()
		return nil
	}
	want := wanted(addrs)
	have, intact, err := c.socket.Intact(want)
	if err != nil {
		return err
	}
	if intact {
		c.note(have, now)
		c.count(now)
		return nil
	}
	c.count(time.Time{})
	if err := c.socket.Make(want); err != nil {
		return fmt.Errorf("make nftables table %s: %w", table().Name, err)
	}
	c.made, c.seen = true, make(map[netip.Addr]uint64)
	c.count(now)
	return nil
}

// count starts counting for addresses without a start. A zero time stops it for all.
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

// note adds the increase of the rules' counters since the last reading.
func (c *Counter) note(have []ruleset.Rule, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range have {
		addr, err := netip.ParseAddr(r.Comment)
		n, counted := c.counts[addr]
		if err != nil || !counted || r.Packets == c.seen[addr] {
			continue
		}
		if r.Packets < c.seen[addr] { // another program has reset the counter
			c.seen[addr] = 0
		}
		n.Arrived, n.Last = n.Arrived+r.Packets-c.seen[addr], now
		c.counts[addr], c.seen[addr] = n, r.Packets
	}
}

const (
	prerouting = "prerouting"
	arrivals   = "arrivals" // only first packets of connections go through its rule for each address
)

func table() *nftables.Table {
	return &nftables.Table{Name: "herald_arrivals", Family: nftables.TableFamilyINet}
}

// wanted returns the table that counts for addrs. The comment of a counting rule is its address.
func wanted(addrs []netip.Addr) ruleset.Table {
	counting := ruleset.Chain{Name: arrivals}
	for _, addr := range addrs {
		counting.Rules = append(counting.Rules, ruleset.NewRule(addr.String(), ruleset.To(addr), []expr.Any{&expr.Counter{}}))
	}
	// Behind the fence: packets that it drops are not counted.
	hooked := ruleset.Chain{Name: prerouting, Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityRaw + 1, Rules: []ruleset.Rule{
		ruleset.NewRule("SYN from another host", ruleset.TCP(), ruleset.SYN(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
			ruleset.Meta(expr.MetaKeyIIFNAME), ruleset.NotEqual(ruleset.LinkName(link.TunnelName)...), ruleset.Local(),
			[]expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: arrivals}}),
	}}
	return ruleset.Table{Table: table(), Chains: []ruleset.Chain{counting, hooked}}
}

// remove removes the table if it may exist. A table that is left changes no packet.
func (c *Counter) remove() {
	if c.made {
		c.made = false
		_ = c.socket.RemoveTables(table())
	}
}
