package lease

import "time"

// maxBids is for how many leases this member bids at a time. Where thousands are
// free at once, more would only be in each other's way.
const maxBids = 256

// Tick does what is due, if anything is.
func (m *Machine) Tick(now time.Time) {
	m.advance(now)
	if m.next.IsZero() || m.now.Before(m.next) {
		return
	}
	m.next = time.Time{}
	m.agree()
	m.watchQuorum()
	if !m.now.Before(m.helloAt) {
		m.hello()
	}
	m.wake(m.helloAt)
	m.sendLate()
	if m.now.Before(m.settled) {
		m.wake(m.settled)
	}
	if m.now.Before(m.abstain) {
		m.wake(m.abstain)
	}
	renewing := m.renewing()
	m.bids = 0
	for _, l := range m.own {
		if l.phase != idle && !l.holds() {
			m.bids++
		}
	}
	for _, l := range m.own {
		m.tend(l, renewing)
	}
}

// hello tells the peers everything, which is due every third of a Duration, and
// does what is worth a look as often. Those who have nothing to tell each other do so
// less often.
func (m *Machine) hello() {
	m.helloAt = m.now.Add(m.duration() / 3)
	m.hellos++
	for _, p := range m.peers {
		p.greet = p.greet || m.hellos%farHellos == 1 || m.near(p)
	}
	m.forgetIdle()
	for _, l := range m.own {
		m.considerYield(l)
	}
}

func (m *Machine) greetAll() {
	m.helloAt = m.now.Add(m.duration() / 3)
	for _, p := range m.peers {
		p.greet = true
	}
}

// watchQuorum notes whether enough members are heard to win an election.
func (m *Machine) watchQuorum() {
	could := m.electable()
	if could && !m.canWin {
		m.canSince = m.now
		if m.candidate() {
			m.greetAll() // the candidacies count from now on
		}
	}
	m.canWin = could
}

// electable reports whether enough members are heard.
func (m *Machine) electable() bool {
	switch {
	case m.active == nil:
		return false
	case m.active.Quorum == None:
		return m.active.has(m.self.member)
	}
	return len(m.audible()) >= m.active.majority()
}

// audible lists the members of the active electorate that might vote for this
// one, this one included if it has a vote.
func (m *Machine) audible() []string {
	if m.active == nil {
		return nil
	}
	var names []string
	if m.active.has(m.self.member) {
		names = append(names, m.self.member)
	}
	for _, p := range m.peers {
		if m.active.has(p.name) && p.fresh(m.now, m.duration()) &&
			serves(p.active, p.pending, m.active.digest) {
			names = append(names, p.name)
		}
	}
	return names
}

// renewing reports whether a renewal is due. Others that soon are go with it, so
// that all share their datagrams from then on.
func (m *Machine) renewing() bool {
	for _, l := range m.own {
		if l.phase == granted && !m.now.Before(l.begun.Add(m.duration()/3)) {
			return true
		}
	}
	return false
}

// tend does what is due for one lease.
func (m *Machine) tend(l *lease, renewing bool) {
	d := m.duration()
	late := l.begun.Add(d / 3)
	if l.outbid && !l.holds() { // no use to wait for those who say nothing
		late = l.begun.Add(d / 12)
	}
	switch {
	case l.phase == idle:
		if l.standing && m.canWin {
			m.awaitTurn(l)
		}
	case l.phase == granted:
		if !m.now.Before(late) || renewing && !m.now.Before(l.begun.Add(d/4)) {
			m.renew(l)
		} else {
			m.wake(late)
		}
	case !m.now.Before(late) && !l.holds():
		m.fail(l, m.now)
	case !m.now.Before(late):
		m.renew(l)
	case !m.now.Before(l.resend):
		l.resend = m.now.Add(d / 12)
		m.wake(l.resend)
		m.ask(l)
		m.conclude(l) // with quorum None, fewer may be needed by now
	default:
		m.wake(l.resend)
	}
	if l.holds() {
		m.wake(l.giveUp)
	}
}

// renew starts another round, with the same ballot if that still does.
func (m *Machine) renew(l *lease) {
	if l.outbid || l.phase == preparing {
		m.bid(l)
	} else {
		m.propose(l)
	}
}

// awaitTurn bids once the lease is free and those preferred have had their turn. A new
// candidate first lets others, that may have begun at the same time, tell so.
func (m *Machine) awaitTurn(l *lease) {
	free := later(later(l.expires, l.after), later(l.since, m.canSince).Add(m.duration()/20))
	if m.now.Before(free) {
		m.wake(free)
		return
	}
	if !free.Equal(l.free) {
		l.free, l.turn = free, free.Add(time.Duration(m.rank(l))*m.duration()/10)
	}
	if m.now.Before(l.turn) {
		m.wake(l.turn)
		return
	}
	if m.bids >= maxBids {
		m.wake(m.now.Add(m.duration() / 60))
		return
	}
	m.bids++
	m.bid(l)
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
