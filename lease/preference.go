package lease

import "fmt"

// claim is what decides between candidates for a free lease.
type claim struct {
	named    bool // by whoever released the lease
	former   bool // held the lease last, and let it expire or gave it up
	priority int
	hash     uint64 // spreads the leases over equal members (rendezvous hashing)
	member   string
}

// before reports whether c is preferred to o.
func (c claim) before(o claim) bool {
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

func (l *lease) claim(member string, priority int) claim {
	return claim{
		named:    member == l.successor && !l.released.IsZero(),
		former:   member == l.accepted.member,
		priority: priority,
		hash:     hash(member, l.id),
		member:   member,
	}
}

// rank is how many other candidates are preferred for a free lease.
func (m *Machine) rank(l *lease) int {
	mine := l.claim(m.self.member, l.Priority)
	rank := 0
	m.rivals(l, func(p *peer, s *stand) {
		if l.claim(p.name, s.priority).before(mine) {
			rank++
		}
	})
	return rank
}

// successor is the best other candidate, empty if there is none.
func (m *Machine) successor(l *lease) string {
	var best claim
	m.rivals(l, func(p *peer, s *stand) {
		c := claim{priority: s.priority, hash: hash(p.name, l.id), member: p.name}
		if best.member == "" || c.before(best) {
			best = c
		}
	})
	return best.member
}

// rivals calls f for every other member that stands for the lease.
func (m *Machine) rivals(l *lease, f func(*peer, *stand)) {
	if m.active == nil {
		return
	}
	for _, p := range m.peers {
		if s := p.candidacy(m.now, m.duration(), l.id); s != nil {
			f(p, s)
		}
	}
}

// considerYield asks the caller to hand the lease over when another member wants
// to preempt this one, and has been steady for one Duration.
func (m *Machine) considerYield(l *lease) {
	d := m.duration()
	if !l.holds() || m.now.Sub(l.gained) < d {
		return
	}
	var best claim
	m.rivals(l, func(p *peer, s *stand) {
		c := claim{priority: s.priority, hash: hash(p.name, l.id), member: p.name}
		if s.preempt && s.priority > l.Priority && m.now.Sub(s.since) >= d && (best.member == "" || c.before(best)) {
			best = c
		}
	})
	if best.member == l.yields {
		return
	}
	if l.yields = best.member; best.member != "" {
		m.events = append(m.events, Yield{Lease: l.Lease, To: best.member,
			Reason: fmt.Sprintf("%s has priority %d and preempts priority %d", best.member, best.priority, l.Priority)})
	}
}

// settle ends the lease of the less preferred of two holders, which only quorum
// None permits, as soon as they hear of each other.
func (m *Machine) settle(l *lease, p *peer, s *stand) {
	if m.active == nil || m.active.Quorum != None || !l.holds() || s.epoch == 0 {
		return
	}
	mine := claim{priority: l.Priority, hash: hash(m.self.member, l.id), member: m.self.member}
	theirs := claim{priority: s.priority, hash: hash(p.name, l.id), member: p.name}
	if theirs.before(mine) {
		m.drop(l, p.name)
		l.lost = p.name + " holds it too and is preferred; without a quorum a partition has two holders"
		m.events = append(m.events, Lost{Lease: l.Lease, Reason: l.lost})
	}
}
