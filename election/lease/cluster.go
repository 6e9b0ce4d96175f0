package lease

import (
	"cmp"
	"fmt"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
)

// This file decides between clusters: which of them a member belongs to, and whether it may begin one.

// Heed sets the standings of other nodes, by name: a member with [Open.Bootstrap] begins no cluster beside
// theirs, even if their messages do not arrive.
func (m *Machine) Heed(now time.Time, standings map[string]electorate.Standing) {
	m.advance(now)
	m.standings = standings
}

// Standing returns this member's standing.
func (m *Machine) Standing() electorate.Standing {
	clustered := m.voter() || m.inForce() && !m.active().OnNode(electorate.Name(m.active().Members[0]))
	for _, p := range m.peers {
		clustered = clustered || m.inForce() && m.active().Has(p.name) && m.peerStatus(p).Problem == ""
	}
	return electorate.Standing{Clustered: clustered, Bootstraps: !m.inForce() && m.open != nil && m.open.Bootstrap}
}

// forestalled explains why this member begins no cluster of its own: another node has one, or is to begin it; empty if
// none does.
func (m *Machine) forestalled() string {
	for _, p := range m.peers {
		switch {
		case p.number == 0 || !p.fresh(m.now, m.duration()): // else this member has its electorate
		case p.heard:
			return electorate.Name(p.name) + " follows another node with the name of this one: give each node its own name"
		case p.described != nil && !p.described.OnNode(electorate.Name(m.self.member)):
			return electorate.Name(p.name) + m.lost(*p.described)
		}
	}
	for name, s := range m.standings {
		switch {
		case s.Clustered:
			return name + " answers by TCP and belongs to a cluster, so this node begins none: let UDP through between the members, " +
				"make sure that no other node has the name of this one, and remove bootstrap here"
		case s.Bootstraps && name < electorate.Name(m.self.member):
			return name + " bootstraps too and goes first: remove bootstrap here, or if " + name + " is gone, restart herald here"
		}
	}
	return ""
}

// seed is the random part of the identity of a cluster that this member begins: members that begin it at once, with
// the same peers in view, derive the same.
func (m *Machine) seed(waiting []*peer) uint64 {
	seed := message.Identity(m.self.member, m.self.incarnation)
	for _, p := range waiting {
		seed = min(seed, message.Identity(p.name, p.incarnation))
	}
	return seed
}

// leaves reports whether this member leaves its cluster for that of a peer, which hears the majority there. Observers, a
// sole voter, and a voter that is left behind may leave (rule 9).
func (m *Machine) leaves(p *peer, r electorate.Committed) bool {
	return r.Cluster != m.state.Committed.Cluster && m.yieldsTo(p) && (m.isSoleVoter() || !m.voter() || m.isLeftBehind(r))
}

// isTwin reports whether r begins the same electorate as this member's: their voters began at once, with different
// peers in view. All take the lesser one.
func (m *Machine) isTwin(r electorate.Committed) bool {
	mine := m.state.Committed
	return mine.Number == 1 && r.Number == 1 && r.Cluster != mine.Cluster && r.Digest() == m.digest
}

// isSoleVoter reports whether this member is known to be the only voter: it has begun a cluster that no other has joined.
func (m *Machine) isSoleVoter() bool {
	return m.open != nil && m.state.Committed.Number == 1 && len(m.active().Members) == 1 && m.voter() && m.state.Value == nil
}

// isLeftBehind reports whether a majority of this member's committed electorate belongs to the cluster of r, so that
// there will never be a majority here again.
func (m *Machine) isLeftBehind(r electorate.Committed) bool {
	return !m.isTwin(r) && m.members(electorate.Committed{Cluster: r.Cluster, Electorate: *m.active()}) >= m.active().Majority()
}

// members counts the peers in an electorate that belong to its cluster now, by messages that no one can have recorded
// before this process began.
func (m *Machine) members(r electorate.Committed) (count int) {
	for _, p := range m.peers {
		if r.Has(p.name) && p.mutual && p.number > 0 && p.cluster == r.Cluster && p.fresh(m.now, m.duration()) {
			count++
		}
	}
	return count
}

// hearsMajority reports whether this member can win leases and receives a majority of its cluster, itself included.
// Voters that do not follow the cluster yet do not count.
func (m *Machine) hearsMajority() bool {
	count := m.members(m.state.Committed)
	if m.voter() {
		count++
	}
	return m.electable() && (m.active().Quorum == electorate.None || count >= m.active().Majority())
}

// lost describes an electorate without a heard majority, as the end of a sentence about one of its followers.
func (m *Machine) lost(r electorate.Electorate) string {
	return fmt.Sprintf(" belongs to a cluster without a majority, %s: start the voters of that cluster, "+
		"or stop herald there and remove its stored electorate", r)
}

// rank orders clusters that meet: one with a changed electorate comes before one of several members, and that before a
// member that has begun one alone.
func rank(number uint64, e *electorate.Electorate) int {
	switch {
	case number > 1:
		return 2
	case e != nil && len(e.Members) > 1:
		return 1
	}
	return 0
}

// yieldsTo reports whether this member's cluster gives way to that of a peer. The order is the same on both sides
// (rule 11): first a heard majority, then [rank], then the lesser identity.
func (m *Machine) yieldsTo(p *peer) bool {
	mine := m.state.Committed
	if mine.Number == 0 || mine.Quorum != electorate.Majority || !p.heard || p.cluster == 0 || p.cluster == mine.Cluster || !p.fresh(m.now, m.duration()) {
		return false
	}
	if p.number == 1 && (p.described == nil || p.described.Digest() != p.active) {
		return false // it will tell
	}
	return !m.hears || cmp.Or(cmp.Compare(rank(mine.Number, m.active()), rank(p.number, p.described)), cmp.Compare(p.cluster, mine.Cluster)) < 0
}

// standStill ends this member's leases, bids and attempt. While another cluster takes precedence, it grants, accepts and
// requests nothing from then on.
func (m *Machine) standStill(reason string) {
	for _, l := range m.own {
		m.end(l, reason)
	}
	m.attempt = nil
}

// yields describes the cluster that this member's gives way to, and how this node joins it; empty if there is none.
func (m *Machine) yields() string {
	if m.greater == nil {
		return ""
	}
	return fmt.Sprintf("%s belongs to another cluster, %s, to which this node's gives way, %s: to join it, stop herald here, "+
		"remove the stored electorate and `bootstrap: true`, and start herald", electorate.Name(m.greater.name), m.greater.theirs(), m.active())
}
