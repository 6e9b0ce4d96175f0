package lease

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// maxBids is for how many leases this member bids at a time. Where thousands are
// free at once, more would only be in each other's way.
const maxBids = 256

// Tick does what is due, if anything is.
func (m *Machine) Tick(now time.Time) {
	m.advance(now)
	if !wake.Due(m.now, m.next) {
		return
	}
	m.next = time.Time{}
	m.agree()
	m.watchQuorum()
	if !m.now.Before(m.keepaliveAt) {
		m.keepalive()
	}
	m.wake(m.keepaliveAt)
	m.sendLate()
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
		m.tickLease(l, renewing)
	}
}

// hello tells the peers everything, which is due every third of a Duration, and
// does what is worth a look as often. Those who have nothing to tell each other do so
// less often.
func (m *Machine) keepalive() {
	m.keepaliveAt = m.now.Add(m.duration() / 3)
	m.keepalives++
	if m.updateDesired() || m.lingering {
		m.updatePeers()
		m.wake(m.now)
	}
	for _, p := range m.peers {
		p.probe = p.probe || m.keepalives%farKeepalives == 1 || m.near(p)
	}
	m.forgetIdle()
	for _, l := range m.own {
		m.considerTransfer(l)
	}
}

// renewing reports whether a renewal is due. Others that soon are go with it, so
// that all share their datagrams from then on.
func (m *Machine) renewing() bool {
	return slices.ContainsFunc(m.own, func(l *lease) bool {
		return l.phase == granted && !m.now.Before(l.begun.Add(m.duration()/3))
	})
}

func (m *Machine) tickLease(l *lease, renewing bool) {
	d := m.duration()
	late := l.begun.Add(d / 3)
	if l.outbid && l.phase != granted { // no use to wait for those who say nothing
		late = l.begun.Add(d / 12)
	}
	switch {
	case l.phase == idle:
		if l.campaigning && m.canWin {
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

// forgetIdle drops leases that nobody has asked for in two Durations, candidacies
// that have not been repeated, and observers that are gone.
func (m *Machine) forgetIdle() {
	for id, l := range m.leases {
		if l.candidate == nil && !m.now.Before(l.expires) && m.now.Sub(l.touched) > 2*m.duration() {
			delete(m.leases, id)
		}
	}
	for _, p := range m.peers {
		for id, s := range p.byLease {
			if m.now.Sub(p.last(s)) > farKeepalives*m.duration() {
				p.drop(id)
			}
		}
	}
	m.forgetObservers(func(p *peer) bool { return m.now.Sub(p.present()) > observerMemory })
}
