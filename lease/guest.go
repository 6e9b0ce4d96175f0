package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A guest is a member without a vote: it stands for leases and asks for votes like
// any other, and grants nothing. Guests are in no electorate. They follow the one
// that the voters use, and are known as long as they are heard.

const (
	// guestMemory is how long a guest is remembered that is heard no more.
	guestMemory = 10 * time.Minute
	// farHellos is how many hellos those miss who have nothing to tell each other.
	farHellos = 15
)

// guest reports whether this member neither has a vote nor is to have one.
func (m *Machine) guest() bool {
	return !m.configured.has(m.self.member) && (m.active == nil || !m.active.has(m.self.member))
}

// votes reports whether a member has a vote, or is to have one.
func (m *Machine) votes(name string) bool {
	return slices.ContainsFunc([]*roll{m.active, m.pending, m.configured}, func(r *roll) bool { return r != nil && r.has(name) })
}

// Meet makes guests of members that have not been heard yet and have no vote, so
// that they hear of this one. Those that others are told of in such ways need not
// be there.
func (m *Machine) Meet(now time.Time, names ...string) {
	m.advance(now)
	for _, name := range names {
		p := m.peer(name)
		if p == nil {
			p = m.welcome(name)
		}
		if p == nil {
			continue
		}
		if p.guest && (p.met.IsZero() || p.incarnation == 0) { // what was said to it before may have got nowhere
			p.greet, p.told = true, false
			m.wake(m.now)
		}
		p.met = m.now
	}
}

// welcome makes a guest of a stranger. It is nil if there is no room.
func (m *Machine) welcome(name string) *peer {
	if name == m.self.member || name == "" || len(name) > maxName || !m.makeRoom() {
		return nil
	}
	p := m.known[name]
	if p == nil {
		p = &peer{name: name, sequence: m.forgotten}
		m.known[name] = p
	}
	p.guest, p.greet, p.queue, p.late, p.met = true, true, nil, nil, time.Time{}
	m.insert(p)
	return p
}

// insert adds a peer at its place.
func (m *Machine) insert(p *peer) {
	at, _ := slices.BinarySearchFunc(m.peers, p.name, byName)
	m.peers = slices.Insert(m.peers, at, p)
}

func byName(p *peer, name string) int { return strings.Compare(p.name, name) }

// makeRoom reports whether there is room for a guest, if need be by forgetting the
// one that has been silent for the longest, and for some time.
func (m *Machine) makeRoom() bool {
	guests, silent := 0, (*peer)(nil)
	for _, p := range m.peers {
		if !p.guest {
			continue
		}
		if guests++; silent == nil || p.present().Before(silent.present()) {
			silent = p
		}
	}
	if guests < m.maxGuests {
		return true
	}
	if silent == nil || m.now.Sub(silent.present()) < 2*farHellos*m.duration() {
		return false
	}
	m.forgetGuests(func(p *peer) bool { return p == silent })
	return true
}

// forgetGuests drops guests. What would be sent to one that comes back is
// newer than all that was sent to it before.
func (m *Machine) forgetGuests(which func(*peer) bool) {
	m.peers = slices.DeleteFunc(m.peers, func(p *peer) bool {
		if !p.guest || !which(p) {
			return false
		}
		m.forgotten = max(m.forgotten, p.sequence)
		delete(m.known, p.name)
		return true
	})
}

// present is when there last was a sign of a peer.
func (p *peer) present() time.Time { return later(p.heard, p.met) }

// near reports whether a peer is to hear of this member often: both vote, both stand
// for the same lease, or one votes and the other, which has no vote, is a candidate.
func (m *Machine) near(p *peer) bool {
	switch mine, its := m.votes(m.self.member), m.votes(p.name); {
	case mine && its:
		return true
	case mine:
		return len(p.stands) > 0
	case its:
		return m.candidate()
	}
	return slices.ContainsFunc(m.own, func(l *lease) bool { return m.stands(l) && p.stands[l.id] != nil })
}

// candidate reports whether this member stands for any lease.
func (m *Machine) candidate() bool { return slices.ContainsFunc(m.own, m.stands) }

// stands reports whether this member is a candidate, or was until lately.
func (m *Machine) stands(l *lease) bool {
	return l.standing || !l.resigned.IsZero() && m.now.Sub(l.resigned) < m.duration()
}

// follow takes the electorate that the voters use, and waits for the one that they
// wait for. It is in use as soon as one of them says so, and no vote is given to a
// candidate of one that is in use no more: so a guest that follows late wins
// nothing, and does no harm.
func (m *Machine) follow() {
	if r := m.supported(); r != nil && r.digest != m.active.sum() {
		m.refuseVotesFor(r.Duration)
		m.activate(r, nil)
	}
	if next := m.awaited(); next.sum() != m.pending.sum() {
		m.await(next)
		m.meet()
		m.greetAll()
	}
}

// supported returns the electorate that most voters would vote under. That is the
// one in use here, unless another has more. In one that is in use this member has no
// vote: it would have had to wait for it. Who says otherwise has an old list, and this
// member, which may have had a vote by that, must not give it once more.
func (m *Machine) supported() *roll {
	best, most := m.active, m.supporters(m.active)
	for _, p := range m.peers {
		r := p.roll(p.active)
		if r == nil || !r.has(p.name) || r.has(m.self.member) || !p.fresh(m.now, m.duration()) {
			continue
		}
		if n := m.supporters(r); n > most {
			best, most = r, n
		}
	}
	return best
}

// supporters counts the voters that are heard and vote under an electorate.
func (m *Machine) supporters(r *roll) int {
	if r == nil {
		return 0
	}
	n := 0
	for _, name := range r.Members {
		if p := m.peer(name); p != nil && p.fresh(m.now, m.duration()) && serves(p.active, p.pending, r.digest) {
			n++
		}
	}
	return n
}

// awaited returns the electorate that voters wait for, of several the one with the
// shortest leases; nil if there is none.
func (m *Machine) awaited() *roll {
	var next *roll
	for _, p := range m.peers {
		if m.active == nil || p.active != m.active.digest || !m.active.has(p.name) || !p.fresh(m.now, m.duration()) {
			continue
		}
		if r := p.roll(p.pending); r != nil && (next == nil || r.Duration < next.Duration ||
			r.Duration == next.Duration && r.digest < next.digest) {
			next = r
		}
	}
	return next
}

// lag says that a guest was configured with another electorate than the voters use.
func (m *Machine) lag() string {
	if m.active == nil || !m.guest() || m.configured.digest == m.active.digest || m.configured.digest == m.pending.sum() {
		return ""
	}
	return fmt.Sprintf("the electorate in use is %s, this member is configured with %s: give it that of the voters", m.active, m.configured)
}
