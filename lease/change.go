package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reconfigure starts a change to another electorate. The present one is used
// until all members of the new one know it; then votes under either overlap. To
// take a change back, reconfigure to the present electorate. An error says why
// it cannot be taken; then nothing has changed. A member without a vote, which has
// none by the new one either, follows the voters and takes any.
func (m *Machine) Reconfigure(now time.Time, e Electorate) error {
	if err := e.Validate(); err != nil {
		return err
	}
	m.advance(now)
	next := newRoll(e)
	switch {
	case !next.has(m.self.member) && (m.active == nil || !m.active.has(m.self.member)): // the voters decide
		if m.votes(m.self.member) {
			m.pending = nil
		}
	case next.digest == m.pending.sum(), next.digest == m.active.sum() && m.pending == nil:
		m.configured = next
		return nil
	case next.digest == m.active.sum():
		m.pending = nil
	case m.active == nil && m.guest():
		m.pending = next
	case m.active == nil:
		return fmt.Errorf("this member has not joined the others yet (%s): restart it with the other electorate; it holds nothing", m.problem)
	case m.pending != nil:
		return fmt.Errorf("the change of the electorate from %s to %s is not complete: wait until every member has taken it, or take it back first",
			m.active, m.pending)
	case !m.active.adjacent(e):
		return fmt.Errorf("the electorate changes by one member at a time, not from %s to %s", m.active, next)
	default:
		m.await(next)
	}
	m.configured = next
	m.meet()
	m.greetAll()
	m.agree()
	m.wake(m.now)
	return nil
}

// await makes an electorate the one to come, or none.
func (m *Machine) await(next *roll) {
	m.pending = next
	if d := m.active.Duration; next != nil && next.Duration < d { // leases of the greater one must end before
		m.settled = later(m.settled, m.now.Add(d+d/50))
	}
}

// String lists the members, the duration and the quorum.
func (r *roll) String() string {
	return fmt.Sprintf("[%s; %v, %v]", strings.Join(r.Members, " "), r.Duration, r.Quorum)
}

// refuseVotesFor makes a started member abstain: an earlier process of it may
// have voted for leases of that duration ("Acceptors restart").
func (m *Machine) refuseVotesFor(d time.Duration) {
	m.abstain = later(m.abstain, m.started.Add(d+d/50))
	m.settled = later(m.settled, m.abstain)
}

// boundBy is until when a process of p that has just begun may have votes out, by the
// process before it, for an electorate of a greater Duration than the one in use here.
// It abstains for the Duration that it was started with; but who makes a step and then
// hears that others took it back knows better.
func (m *Machine) boundBy(p *peer) time.Time {
	if m.active == nil || p.guest {
		return time.Time{}
	}
	for _, r := range append([]*roll{m.former, m.pending}, p.electorates...) {
		if r != nil && r.digest == p.active && r.Duration > m.active.Duration {
			return m.now.Add(r.Duration + r.Duration/50)
		}
	}
	return time.Time{}
}

func (m *Machine) abstaining() bool { return m.now.Before(m.abstain) }

// meet makes peers of the members of all electorates, and keeps the guests. One that
// comes back is the peer that it was: sequence numbers go on.
func (m *Machine) meet() {
	var names []string
	for _, r := range []*roll{m.active, m.pending, m.configured} {
		if r != nil {
			names = append(names, r.Members...)
		}
	}
	before := m.peers
	m.peers = slices.DeleteFunc(slices.Clone(before), func(p *peer) bool { return !p.guest || slices.Contains(names, p.name) })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == m.self.member {
			continue
		}
		p := m.known[name]
		if p == nil {
			p = &peer{name: name, sequence: m.forgotten}
			m.known[name] = p
		}
		if !slices.Contains(before, p) {
			p.queue, p.late, p.greet = nil, nil, true
		}
		p.guest = false
		m.insert(p)
	}
}

// elected reports whether votes grant a lease.
func (m *Machine) elected(votes []string) bool {
	return m.active.elects(votes, m.within())
}

// within lists the members whose votes quorum None wants: those that are heard
// and do not abstain. It is nil for other electorates.
func (m *Machine) within() []string {
	if m.current().Quorum != None {
		return nil
	}
	names := []string{m.self.member}
	for _, p := range m.peers {
		if p.incarnation != 0 && m.now.Sub(p.heard) < m.duration()*2/3 && !p.abstaining {
			names = append(names, p.name)
		}
	}
	return names
}

// serves reports whether an acceptor votes for a candidate, by the digests of
// their electorates: the same, or the one that the acceptor is about to take. A
// candidate that is a step behind learns that from the refusal, and steps on.
func serves(active, pending, candidate uint64) bool {
	return candidate != 0 && (candidate == active || candidate == pending)
}

// mayServe reports whether this member votes for the sender of a message, and how
// long a lease its electorate grants. Who will have no vote, a member that leaves or a
// guest, need not know of a shorter Duration to come, and would use a lease for longer
// than those who stay abstain when they are started: so it has to say that it knows.
func (m *Machine) mayServe(msg *Message) (time.Duration, bool) {
	switch {
	case m.active == nil || !m.active.has(m.self.member), m.active.Quorum == None && !m.active.has(msg.From):
		return 0, false
	case msg.Active == m.active.digest:
		knows := m.pending == nil || m.pending.has(msg.From) || msg.Pending == m.pending.digest
		return m.active.Duration, knows || m.pending.Duration >= m.active.Duration
	case m.pending != nil && msg.Active == m.pending.digest:
		return m.pending.Duration, true
	}
	return 0, false
}

// agree takes the next step of a change of the electorate, if it is due.
func (m *Machine) agree() {
	if m.guest() {
		m.follow()
		return
	}
	if m.active == nil {
		m.join()
	}
	if m.active == nil || m.pending == nil {
		return
	}
	if m.agreed() {
		m.activate(m.pending, nil)
	} else if r := m.rallied(); r != nil {
		m.activate(r, m.pending)
	}
}

// agreed reports whether the pending electorate may replace the active one:
// every member of the new one and a majority of the present one report it. Only
// those count that are settled: no vote of theirs for a candidate of an electorate
// before the present one is left, and they give no more of these. So nobody can
// win under that one any more, and no two electorates in use are more than a step
// apart. One member that has made the step suffices: it has seen all that.
func (m *Machine) agreed() bool {
	var all, present []string
	if !m.now.Before(m.settled) {
		all, present = []string{m.self.member}, []string{m.self.member}
	}
	for _, p := range m.peers {
		switch {
		case p.guest || !p.fresh(m.now, m.duration()):
		case p.active == m.pending.digest && m.pending.has(p.name):
			return true
		case p.pending == m.pending.digest && p.settled:
			all = append(all, p.name)
			if p.active == m.active.digest {
				present = append(present, p.name)
			}
		case m.active.Quorum == None:
			return false
		}
	}
	if m.active.Quorum == None { // all that are heard
		return !m.now.Before(m.settled)
	}
	missing := func(name string) bool { return !slices.Contains(all, name) }
	return m.active.elects(present, nil) && !slices.ContainsFunc(m.pending.Members, missing)
}

// rallied returns the electorate from which to go on, if that is not this member's
// own: members that start amid a change join either side of it, and if all of them
// then wait for the same next one, neither side may have a majority for it. They
// go over to the electorate that most of them use, of two equal ones the one with
// the lesser digest. It is in use already, and a step from the one it replaces and
// from the next, so that all in use are still at most a step apart.
func (m *Machine) rallied() *roll {
	if m.active.Quorum != Majority || !m.pending.has(m.self.member) || m.now.Before(m.settled) {
		return nil
	}
	users := map[uint64]int{m.active.digest: 1}
	most := m.active
	for _, name := range m.pending.Members {
		p := m.peer(name)
		if p == nil { // this member itself
			continue
		}
		r := p.roll(p.active)
		if r == nil || !p.fresh(m.now, m.duration()) || p.pending != m.pending.digest || !p.settled {
			return nil // it does not wait yet
		}
		users[r.digest]++
		if n := users[r.digest] - users[most.digest]; n > 0 || n == 0 && r.digest < most.digest {
			most = r
		}
	}
	if most.digest == m.active.digest || most.Quorum != Majority || !most.has(m.self.member) ||
		!most.adjacent(m.active.Electorate) || !most.adjacent(m.pending.Electorate) {
		return nil
	}
	return most
}

// join finds the electorate of a started member. It is what others use, if that
// is at most a step from the configured one; or the configured one, if a majority
// waits for it too.
func (m *Machine) join() {
	waiting := 1
	var near *roll
	m.problem = ""
	for _, p := range m.peers {
		r := p.roll(p.active)
		switch {
		case p.guest || !p.fresh(m.now, m.duration()):
		case p.active == m.pending.digest:
			m.activate(m.pending, nil)
			return
		case p.active == 0:
			if p.pending == m.pending.digest {
				waiting++
			}
		case r != nil && r.adjacent(m.pending.Electorate):
			if near == nil {
				near = r
			}
		case m.problem == "":
			m.problem = fmt.Sprintf("%s is of the electorate %s, which is more than one member away from ours, %s", p.name, p.theirs(), m.pending)
		}
	}
	switch {
	case near != nil:
		m.problem = ""
		m.refuseVotesFor(near.Duration)
		m.active = near
		m.meet()
		m.greetAll()
	case m.problem != "":
	case waiting >= m.pending.majority():
		m.activate(m.pending, nil)
	default:
		m.problem = fmt.Sprintf("waiting for a majority of the members: heard %d of %d that are configured alike", waiting, len(m.pending.Members))
	}
}

// activate takes an electorate, and waits for the next one if there is one: leases
// are no longer than under either. What was asked under the one before is asked anew.
func (m *Machine) activate(r, next *roll) {
	if m.active != nil {
		d := max(r.Duration, m.active.Duration)
		m.settled = later(m.settled, m.now.Add(d+d/50))
		m.former = m.active
	}
	m.active, m.pending, m.problem = r, next, ""
	m.meet()
	for _, p := range m.peers {
		p.queue, p.late = nil, nil
	}
	m.watchQuorum()
	for _, l := range m.own {
		if l.holds() {
			m.renew(l)
		} else {
			m.drop(l, "")
		}
	}
	m.greetAll()
	m.wake(m.now)
}
