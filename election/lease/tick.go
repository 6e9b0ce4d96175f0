package lease

import (
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

// The pace of a member is its limit of simultaneous ballots for free leases. Below firstBids it limits their frequency
// instead, because ballots that begin together share messages. Each quick success adds one. While no lease is free, each
// keepalive adds one too, up to firstBids. Each ballot or renewal without an answer in time halves the pace. So busy
// members take leases slowly instead of losing many again and again. A follower keeps the pace of the lease that it
// follows.
const firstBids, maxBids = 32, 256

func (m *Machine) slow() { m.pace = max(1, m.pace/2) }

// Tick performs due work.
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
	if !m.unanswered.IsZero() && m.now.Sub(m.unanswered) >= m.duration()/12 {
		m.bids = maxBids // start none: the caller still acts on earlier events
	}
	for _, l := range m.own {
		switch {
		case l.phase != idle && !l.holds():
			m.bids++
		case l.phase != idle && l.phase != granted && !m.now.Before(l.begun.Add(m.duration()/12)):
			m.bids = maxBids // start none: a renewal is late
		}
	}
	bids := m.bids
	for _, l := range m.own {
		m.tickLease(l, renewing)
	}
	if m.bids > bids && m.pace < firstBids {
		m.bidsAt = later(m.bidsAt, m.now.Add(m.duration()/time.Duration(m.pace)))
	}
}

// keepalive sends the full state to the peers, every third of a Duration, and does other periodic work. Peers that need
// little of each other receive it less often.
func (m *Machine) keepalive() {
	m.keepaliveAt = m.now.Add(m.duration() / 3)
	m.keepalives++
	if !slices.ContainsFunc(m.own, m.isFree) {
		m.pace = max(m.pace, min(m.pace+1, firstBids))
	}
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

// isFree reports whether a lease that this member campaigns for has no known holder.
func (m *Machine) isFree(l *lease) bool {
	_, held := l.holder(m.now)
	return l.campaigning && !held && !l.holds()
}

// renewing reports whether a renewal is due. Others due soon are renewed with it, so that they share datagrams from
// then on.
func (m *Machine) renewing() bool {
	return slices.ContainsFunc(m.own, func(l *lease) bool {
		return l.phase == granted && !m.now.Before(l.begun.Add(m.duration()/3))
	})
}

func (m *Machine) tickLease(l *lease, renewing bool) {
	d := m.duration()
	late := l.begun.Add(d / 3)
	if l.outbid && l.phase != granted { // do not wait for members that do not answer
		late = l.begun.Add(d / 12)
	}
	switch stuck := m.stuck(); {
	case stuck && l.phase != idle && !l.holds():
		m.fail(l, m.now)
	case stuck: // neither bid nor renew
	case l.phase == idle:
		if l.campaigning && m.canWin && m.mayHold(l) {
			m.awaitTurn(l)
		}
	case l.phase == granted:
		if !m.now.Before(late) || renewing && !m.now.Before(l.begun.Add(d/4)) {
			m.renew(l)
		} else {
			m.wake(late)
		}
	case !m.now.Before(late) && !l.holds():
		if !l.outbid {
			m.slow()
		}
		m.fail(l, m.now)
	case !m.now.Before(late):
		m.renew(l)
	case !m.now.Before(l.resend):
		l.resend = m.now.Add(d / 12)
		m.wake(l.resend)
		m.ask(l)
		m.conclude(l) // quorum None may need fewer votes by now
	default:
		m.wake(l.resend)
	}
	if l.holds() {
		m.wake(l.giveUp)
	}
}

// awaitTurn starts a ballot once the lease is free and preferred candidates have had their turn. A new candidate first
// waits for the candidacies of others that may have started at the same time. A candidate for a follower had its turn
// with the lease that it follows.
func (m *Machine) awaitTurn(l *lease) {
	free := later(l.expires, l.after)
	if l.After == "" {
		free = later(free, later(l.since, m.canSince).Add(m.duration()/20))
	}
	if m.now.Before(free) {
		m.wake(free)
		return
	}
	if !free.Equal(l.free) {
		l.free, l.turn = free, free
		if l.After == "" {
			l.turn = free.Add(time.Duration(m.rank(l)) * m.duration() / 10)
		}
	}
	if m.now.Before(l.turn) {
		m.wake(l.turn)
		return
	}
	if l.After != "" {
		m.bid(l)
		return
	}
	if m.bids >= max(firstBids, m.pace) {
		m.bidsAt = later(m.bidsAt, m.now.Add(m.duration()/60))
	}
	if m.now.Before(m.bidsAt) {
		m.wake(m.bidsAt)
		return
	}
	m.bids++
	m.bid(l)
}

// forgetIdle removes leases without requests for two Durations, unconfirmed candidacies, and lost observers.
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
