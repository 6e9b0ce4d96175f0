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
	// passOver is how long another node may stand for nothing before it is taken for
	// unable to hold addresses, such as for being drained, and the next is asked.
	passOver = 3 * time.Second
	// aftermath is how long beyond its linger an address stays a Service's for the fence.
	aftermath = 2 * time.Second
)

// candidacies are which addresses of Services this node may hold, and which other nodes it has to
// reckon with. It is a value.
type candidacies struct {
	offered []Address
	leaving map[netip.Addr]time.Time // offered no more, and until when they may still be bound
	idle    map[string]time.Time     // since when others that are alive have stood for nothing
	fit     map[string]bool          // the others that are alive and seem able to hold addresses
}

// next takes in the addresses that this node may hold by what the API says, and the members.
func (c candidacies) next(now time.Time, self string, linger time.Duration, offered []Address, members []election.Member) candidacies {
	to := candidacies{offered: offered, leaving: make(map[netip.Addr]time.Time), idle: make(map[string]time.Time), fit: make(map[string]bool)}
	for addr, until := range c.leaving {
		if now.Before(until) {
			to.leaving[addr] = until
		}
	}
	for _, old := range c.offered {
		to.leaving[old.Addr] = now.Add(linger + aftermath)
	}
	for _, a := range offered {
		delete(to.leaving, a.Addr)
	}
	for _, m := range members {
		if m.Name == self || !m.Alive {
			continue
		}
		if m.Campaigns > 0 {
			to.fit[m.Name] = true
			continue
		}
		since, ok := c.idle[m.Name]
		if !ok || len(c.offered) == 0 { // there was nothing to stand for
			since = now
		}
		to.idle[m.Name] = since
		to.fit[m.Name] = now.Sub(since) < passOver
	}
	return to
}

// choose returns the addresses for which this node stands. holds are the leases that it has.
func (c candidacies) choose(self string, holds map[string]bool, met bool) []Address {
	var out []Address
	for _, a := range c.offered {
		one := rendezvous.Candidacy{Addr: a.Addr, Self: self, Qualified: a.Nodes, Preferred: a.Preferred, Fit: c.fit, Holds: holds[a.Addr.String()], Met: met}
		if one.Campaigns() {
			a.holdsApart = holds[a.Apart.String()] && (!one.Holds || a.Apart.Less(a.Addr))
			out = append(out, a)
		}
	}
	return out
}

// addresses are all that are, or may still be bound as, a Service's.
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

// sameClaim says whether two addresses are the same, may be on the same links, and are claimed alike by this node.
func (a Address) sameClaim(b Address) bool {
	return a.Addr == b.Addr && slices.Equal(a.Interfaces, b.Interfaces) && a.Preempt == b.Preempt && a.Apart == b.Apart && a.holdsApart == b.holdsApart &&
		maps.Equal(a.Preferred, b.Preferred)
}

// claim is the priority with which a node stands for the address, and whether it takes it for that from another. Who holds
// two addresses that are to be apart hands one over, and only he does.
func (a Address) claim(node string) (priority int, preempt bool) {
	if a.Apart.IsValid() {
		return rendezvous.PriorityApart(a.Preferred[node], a.holdsApart), a.Preempt || len(a.Preferred) == 0
	}
	return rendezvous.Priority(a.Addr, node, a.Preferred[node]), a.Preempt
}
