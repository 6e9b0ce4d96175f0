package lease

import (
	"fmt"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/wire"
)

// preference orders the candidates for a free lease.
type preference struct {
	named    bool // by the member that released the lease
	former   bool // held the lease last, and let it expire or released it
	priority int
	hash     uint64 // distributes the leases over equal members (rendezvous hashing)
	member   string
}

func (c preference) before(o preference) bool {
	switch {
	case c.named != o.named:
		return c.named
	case c.former != o.former:
		return o.former
	case c.priority != o.priority:
		return c.priority > o.priority
	case c.hash != o.hash:
		return c.hash > o.hash
	}
	return c.member < o.member
}

func (l *lease) preference(member string, priority int) preference {
	return preference{
		named:    member == l.successor && !l.released.IsZero(),
		former:   member == l.accepted.member,
		priority: priority,
		hash:     wire.Hash(member, l.id),
		member:   member,
	}
}

// rank counts the other candidates that are preferred for a free lease.
func (m *Machine) rank(l *lease) int {
	mine := l.preference(m.self.member, l.Priority)
	rank := 0
	m.rivals(l, func(p *peer, s *peerCandidacy) {
		if l.preference(p.name, s.priority).before(mine) {
			rank++
		}
	})
	return rank
}

// best returns the best other candidate that passes the filter; without a member if there is none.
func (m *Machine) best(l *lease, may func(*peerCandidacy) bool) (best preference) {
	m.rivals(l, func(p *peer, s *peerCandidacy) {
		c := preference{priority: s.priority, hash: wire.Hash(p.name, l.id), member: p.name}
		if may(s) && (best.member == "" || c.before(best)) {
			best = c
		}
	})
	return best
}

// rivals calls f for every other candidate for the lease.
func (m *Machine) rivals(l *lease, f func(*peer, *peerCandidacy)) {
	if !m.inForce() {
		return
	}
	for _, p := range m.peers {
		if s := p.candidacy(m.now, m.duration(), l.id); s != nil {
			f(p, s)
		}
	}
}

// considerTransfer asks the caller to transfer the lease to a member that preempts this one and has been a candidate
// for one Duration without interruption.
func (m *Machine) considerTransfer(l *lease) {
	d := m.duration()
	if !l.holds() || l.After != "" || m.now.Sub(l.gained) < d {
		return
	}
	best := m.best(l, func(s *peerCandidacy) bool { return s.preempt && s.priority > l.Priority && m.now.Sub(s.since) >= d })
	if best.member == l.transferTo {
		return
	}
	if l.transferTo = best.member; best.member != "" {
		m.events = append(m.events, Transfer{Lease: l.Lease, To: electorate.Name(best.member),
			Reason: fmt.Sprintf("%s has priority %d and preempts priority %d", electorate.Name(best.member), best.priority, l.Priority)})
	}
}

// endSecondHolder ends the lease of the less preferred of two holders, as soon as they receive each other's messages.
// Only quorum None permits two holders. Where both hold the lease that this one follows, that lease decides.
func (m *Machine) endSecondHolder(l *lease, p *peer, s *peerCandidacy) {
	if m.active().Quorum != electorate.None || !l.holds() || s.epoch == 0 {
		return
	}
	if first := p.byLease[ID(l.After)]; l.After != "" && first != nil && first.epoch != 0 {
		return
	}
	mine := preference{priority: l.Priority, hash: wire.Hash(m.self.member, l.id), member: m.self.member}
	theirs := preference{priority: s.priority, hash: wire.Hash(p.name, l.id), member: p.name}
	if theirs.before(mine) {
		m.yield(l, p.name)
	}
}

// yield ends a lease and its followers for a preferred holder.
func (m *Machine) yield(l *lease, preferred string) {
	m.drop(l, preferred)
	l.lost = electorate.Name(preferred) + " holds it too and is preferred; without a quorum a partition has two holders"
	m.events = append(m.events, Lost{Lease: l.Lease, Reason: l.lost})
	m.followers(l, func(o *lease) { m.yield(o, preferred) })
}
