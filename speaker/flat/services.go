package flat

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/internal/rendezvous"
)

const (
	// passOver is the time after which the others pass over a live node without a campaign, such as a
	// drained one.
	passOver = 3 * time.Second
	// afterLinger is how long the fence filters an address after its linger.
	afterLinger = 2 * time.Second
)

// candidacies holds the Services' addresses that this node may hold, and the state of the other nodes.
// It is a value.
type candidacies struct {
	offered []Address                // by the API
	leaving map[netip.Addr]time.Time // no longer offered; they may stay bound until then
	idle    map[string]time.Time     // live nodes without a campaign, since when
	fit     map[string]bool          // other live nodes that seem able to hold addresses
}

// next returns the successor of c for the addresses that the API offers this node, and for the members.
func (c candidacies) next(now time.Time, self string, linger time.Duration, offered []Address, members []election.Member) candidacies {
	next := candidacies{offered: offered, leaving: make(map[netip.Addr]time.Time), idle: make(map[string]time.Time), fit: make(map[string]bool)}
	for addr, until := range c.leaving {
		if now.Before(until) {
			next.leaving[addr] = until
		}
	}
	for _, old := range c.offered {
		next.leaving[old.Addr] = now.Add(linger + afterLinger)
	}
	for _, a := range offered {
		delete(next.leaving, a.Addr)
	}
	for _, m := range members {
		if m.Name == self || !m.Alive {
			continue
		}
		if m.Campaigns > 0 {
			next.fit[m.Name] = true
			continue
		}
		since, ok := c.idle[m.Name]
		if !ok || len(c.offered) == 0 { // without an address there was no campaign to expect
			since = now
		}
		next.idle[m.Name] = since
		next.fit[m.Name] = now.Sub(since) < passOver
	}
	return next
}

// choose returns the addresses that this node campaigns for. holds marks the leases that it holds.
func (c candidacies) choose(self string, holds map[string]bool, membersKnown bool) []Address {
	var out []Address
	for _, a := range c.offered {
		own := rendezvous.Candidacy{Addr: a.Addr, Self: self, Qualified: a.Nodes, Preferred: a.Preferred, Fit: c.fit, Holds: holds[a.Addr.String()], MembersKnown: membersKnown}
		if own.Campaigns() {
			a.holdsApart = holds[a.Apart.String()] && (!own.Holds || a.Apart.Less(a.Addr))
			out = append(out, a)
		}
	}
	return out
}

// addresses returns the offered addresses and the leaving ones, which may still be bound.
func (c candidacies) addresses() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool, len(c.offered)+len(c.leaving))
	for addr := range c.leaving {
		out[addr] = true
	}
	for _, a := range c.offered {
		out[a.Addr] = true
	}
	return out
}

// sameClaim reports whether a and b are one address, on the same links, which this node claims alike.
func (a Address) sameClaim(b Address) bool {
	return a.Addr == b.Addr && slices.Equal(a.Interfaces, b.Interfaces) && a.Preempt == b.Preempt && a.Apart == b.Apart && a.holdsApart == b.holdsApart &&
		maps.Equal(a.Preferred, b.Preferred)
}

// claim returns a node's priority for the address, and whether it preempts. Of two addresses that different nodes should
// hold, only a holder of both gives one up.
func (a Address) claim(node string) (priority int, preempt bool) {
	if a.Apart.IsValid() {
		return rendezvous.PriorityApart(a.Preferred[node], a.holdsApart), a.Preempt || len(a.Preferred) == 0
	}
	return rendezvous.Priority(a.Addr, node, a.Preferred[node]), a.Preempt
}
