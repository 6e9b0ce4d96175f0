package flat

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/herald-vip/herald/election"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/internal/rendezvous"
	"github.com/herald-vip/herald/speaker"
)

const (
	// passOver is the time after which the others pass over a live node without a campaign, such as a drained one.
	passOver = 3 * time.Second
	// afterLinger is how long the fence filters an address after its linger.
	afterLinger = 2 * time.Second
)

// candidacies holds the Services' addresses that this node may hold, and the state of the other nodes. It is a value.
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

// Leases adapts the election to the speaker's interface.
type Leases struct {
	*election.Election
	Speaker interface{ LeasesChanged() }

	transfers sync.Map // reasons of pending transfers, by lease
}

// StepDown implements [speaker.Leases].
func (l *Leases) StepDown(leases ...string) {
	l.Election.StepDown(leases...)
	for _, name := range leases {
		l.transfers.Delete(name)
	}
}

// Lease implements [speaker.Leases].
func (l *Leases) Lease(leases ...string) speaker.Lease {
	var all speaker.Lease
	var here, elsewhere bool // addresses' leases
	for _, name := range leases {
		st := l.Election.Lease(name)
		_, named := netip.ParseAddr(name)
		elsewhere = elsewhere || named == nil && !st.Held && st.Holder != ""
		switch why, _ := l.transfers.Load(name); {
		case st.Held:
			if all.Until.IsZero() || st.Until.Before(all.Until) {
				all.Until = st.Until
			}
			all.Transfer, _ = cmp.Or(why, any(all.Transfer)).(string)
			here = here || named == nil
		case all.Reason != "":
		case st.Holder != "" && named == nil:
			all.Reason, all.Lost = st.Holder+" holds the lease of "+name, st.Lost
		case st.Holder != "":
			all.Reason, all.Lost = st.Holder+" holds the lease", st.Lost
		default:
			all.Reason, all.Lost = "no holder: "+st.Why, st.Lost
		}
	}
	if all.Partial = here && elsewhere; all.Reason != "" {
		all.Until = time.Time{}
	}
	return all
}

// Granted implements [election.Handler], like Lost and Transfer: each informs the speaker before it returns. Until the
// speaker has acted on a loss, the election keeps the lease from other members. The speaker reads the current leases.
func (l *Leases) Granted() { l.Speaker.LeasesChanged() }

// Lost implements [election.Handler].
func (l *Leases) Lost(lost []lease.Lost) {
	for _, e := range lost {
		l.transfers.Delete(e.Lease)
	}
	l.Speaker.LeasesChanged()
}

// Transfer implements [election.Handler].
func (l *Leases) Transfer(all []lease.Transfer) {
	for _, t := range all {
		l.transfers.Store(t.Lease, fmt.Sprintf("handed over to %s: %s", t.To, t.Reason))
	}
	l.Speaker.LeasesChanged()
}

// handler passes events of the election to Leases and Flat.
type handler struct {
	*Leases
	*Flat
}

// AliveChanged implements [election.Handler]: which nodes campaign depends on which are alive.
func (h handler) AliveChanged([]string) { h.Look() }

// MemberStatesChanged implements [election.Handler].
func (h handler) MemberStatesChanged(all []election.MemberState) {
	if !h.leaving.Load() {
		h.Options.MemberStates(all)
	}
}
