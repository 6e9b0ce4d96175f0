package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/election/wire"
	"github.com/herald-vip/herald/internal/wake"
)

// phase is the progress of a candidate's ballot.
type phase int

const (
	idle      phase = iota // no ballot
	preparing              // requests promises
	proposing              // requests votes
	granted                // the round has its votes
)

// candidate is this member's part in the election for one lease ("Basic algorithm", proposer). Only a member that
// campaigns starts ballots.
type candidate struct {
	Candidacy
	campaigning bool
	since       time.Time // start of the campaign
	steppedDown time.Time
	appointed   string // the successor that it named on stepping down as the holder

	phase   phase
	ballot  ballot
	round   uint64    // counts proposals; answers to earlier rounds do not count
	begun   time.Time // start of the phase: for a round, before it was sent
	resend  time.Time
	votes   []string // of the current phase
	backers []string // voters of the last renewal
	// refusals belong to the current phase. outbid is set if any of them requires a greater ballot.
	refusals []refusal
	outbid   bool

	until      time.Time // end of the held lease; zero: not held
	giveUp     time.Time // when the lease is lost unless renewed
	renewed    time.Time // start of the last successful round
	lost       string    // reason of the last loss, since the campaign began or the lease was last held
	epoch      uint64    // counter of the ballot that first won the lease
	gained     time.Time
	transferTo string // the member named by the last Transfer event

	after    time.Time // no ballot before
	attempts int       // failed ballots since any member last held the lease
	// turn is when to start a ballot for a lease that is free since free.
	free, turn time.Time
}

type refusal struct {
	member string
	until  time.Time
}

func (c *candidate) holds() bool { return !c.until.IsZero() }

// bid starts a ballot with its first phase. An outbid holder keeps its lease meanwhile; its own grant
// does not count against it at acceptors ("Extending leases").
func (m *Machine) bid(l *lease) {
	m.highest++
	l.ballot = ballot{m.highest, m.self}
	m.enter(l, preparing)
	m.ask(l)
	m.voteForSelf(l, func() vote { return l.prepare(m.now, l.ballot) })
}

// propose requests the lease or its renewal. The ballot stays prepared: a renewal is another round of its second phase.
// The lease's clock starts before the proposal is sent.
func (m *Machine) propose(l *lease) {
	l.round++
	m.enter(l, proposing)
	m.ask(l)
	m.voteForSelf(l, func() vote { return l.acceptor.propose(m.now, l.ballot, m.active().Duration) })
}

// voteForSelf counts this member's own vote, if it has one.
func (m *Machine) voteForSelf(l *lease, ask func() vote) {
	switch {
	case !m.voter():
	case m.abstaining():
		m.count(l, m.self.member, vote{remaining: m.abstention()})
	default:
		m.count(l, m.self.member, ask())
	}
}

func (m *Machine) enter(l *lease, p phase) {
	if l.phase == granted {
		l.backers = append(l.backers[:0], l.votes...)
	}
	l.phase, l.begun, l.resend = p, m.now, m.now.Add(m.duration()/12)
	l.votes, l.refusals, l.outbid = l.votes[:0], l.refusals[:0], false
	m.wake(l.resend)
}

// ask sends the request of the current phase to all voters that have not yet agreed.
func (m *Machine) ask(l *lease) {
	it := message.Item{Kind: message.Prepare, Lease: l.id, Counter: l.ballot.counter}
	switch l.phase {
	case proposing, granted:
		it.Kind, it.Round = message.Propose, l.round
	case idle:
		return
	}
	for _, p := range m.peers {
		if m.active().Has(p.name) && !slices.Contains(l.votes, p.name) {
			m.send(p, it)
		}
	}
}

func (m *Machine) answer(p *peer, it message.Item) {
	l := m.leases[it.Lease]
	if l == nil || l.candidate == nil || l.phase == idle || it.Counter != l.ballot.counter || !m.active().Has(p.name) {
		return
	}
	v := vote{granted: it.Kind != message.Refuse}
	if !v.granted {
		if !m.noteCounter(it.Promised) {
			return
		}
		v.promised, v.remaining = it.Promised, min(max(it.Remaining, 0), 2*electorate.MaxDuration)
	}
	switch {
	case l.phase == preparing && it.Round == 0 && it.Kind != message.Accept:
	case l.phase != preparing && it.Round == l.round && it.Kind != message.Promise:
	default:
		return // answers an earlier request
	}
	m.count(l, p.name, v)
}

// count records one member's vote and acts on the result.
func (m *Machine) count(l *lease, member string, v vote) {
	if !v.granted {
		m.countRefusal(l, member, v)
		return
	}
	if slices.Contains(l.votes, member) {
		return
	}
	l.votes = append(l.votes, member)
	l.refusals = slices.DeleteFunc(l.refusals, func(r refusal) bool { return r.member == member })
	m.conclude(l)
}

func (m *Machine) conclude(l *lease) {
	switch {
	case l.phase == granted || !m.elected(l.votes):
	case l.phase == preparing:
		m.propose(l)
	case l.phase == proposing:
		m.grant(l)
	}
}

func (m *Machine) countRefusal(l *lease, member string, v vote) {
	l.outbid = l.outbid || v.remaining <= 0 && v.promised >= l.ballot.counter
	l.refusals = slices.DeleteFunc(l.refusals, func(r refusal) bool { return r.member == member })
	l.refusals = append(l.refusals, refusal{member, m.now.Add(v.remaining)})
	if l.holds() || l.phase == granted {
		return // keep asking as long as the lease lasts
	}
	soon := m.duration() / 60
	switch again, hopeless := m.hopeless(l); {
	case v.remaining > 0 && m.now.Sub(l.released) < m.duration()/10:
		m.askBy(l, m.now.Add(soon)) // the release has not reached this acceptor yet
	case hopeless:
		m.fail(l, again)
	case v.remaining > 0:
		m.askBy(l, m.now.Add(v.remaining)) // its grant ends slightly later than ours
	}
}

func (m *Machine) askBy(l *lease, t time.Time) {
	if t.Before(l.resend) {
		l.resend = t
		m.wake(t)
	}
}

// hopeless reports whether the members that have not refused are no quorum, and when enough refusals will have ended.
func (m *Machine) hopeless(l *lease) (again time.Time, yes bool) {
	slices.SortFunc(l.refusals, func(a, b refusal) int { return a.until.Compare(b.until) })
	left := slices.Clone(m.active().Members)
	for _, r := range l.refusals {
		left = slices.DeleteFunc(left, func(name string) bool { return name == r.member })
	}
	for _, r := range l.refusals {
		if m.elected(left) {
			break
		}
		left = append(left, r.member)
		again, yes = r.until, true
	}
	return again, yes
}

// grant makes this member the holder, unless the round was too slow.
func (m *Machine) grant(l *lease) {
	d := m.duration()
	until := l.begun.Add(d - d/4) // rule 2
	giveUp := until.Add(-d / 10)
	if !m.now.Before(giveUp) {
		m.slow()
		if !l.holds() {
			m.fail(l, m.now)
		}
		return
	}
	l.phase, l.attempts, l.after, l.renewed, l.lost = granted, 0, time.Time{}, l.begun, ""
	first := !l.holds()
	l.until, l.giveUp = later(l.until, until), later(l.giveUp, giveUp)
	if first {
		if m.now.Before(l.begun.Add(d / 12)) {
			m.pace = min(m.pace+1, maxBids)
		}
		l.epoch, l.gained, l.transferTo, l.appointed = l.ballot.counter, m.now, "", ""
		m.announce(l)
		m.wake(m.now) // for its followers
	}
	m.wake(l.begun.Add(d / 4))
	m.wake(giveUp)
	m.events = append(m.events, Granted{Lease: l.Lease, Epoch: l.epoch, Until: l.until})
}

// fail ends an unsuccessful ballot. The next one waits until again, when enough acceptors may agree. If others propose
// too or do not answer, it waits for a pause that differs between members.
func (m *Machine) fail(l *lease, again time.Time) {
	rivalled := l.outbid || !again.After(m.now)
	m.drop(l, "")
	l.after = again
	if rivalled {
		l.attempts++
		step := m.duration() / 20
		jitter := time.Duration(wire.Hash(m.self.member, l.id+uint64(l.attempts)) % uint64(step))
		l.after = later(again, m.now.Add(step*time.Duration(min(l.attempts, 4))+jitter))
	}
	m.wake(l.after)
}

// drop ends the ballot, and with it the lease if it is held. It informs acceptors that may have granted something
// ("Releasing leases").
func (m *Machine) drop(l *lease, successor string) {
	if l.phase == proposing || l.phase == granted || l.holds() {
		l.acceptor.release(m.now, l.ballot, successor)
		for _, p := range m.peers {
			if !p.observer || p.byLease[l.id] != nil {
				m.send(p, message.Item{Kind: message.Release, Lease: l.id, Counter: l.ballot.counter, To: successor})
			}
		}
	}
	l.phase, l.until, l.epoch = idle, time.Time{}, 0
}

// lose ends a lease and its followers without informing the others: its user may continue until the caller has
// processed the events.
func (m *Machine) lose(l *lease, reason string) {
	l.after = later(l.after, l.until)
	l.phase, l.until, l.epoch, l.lost = idle, time.Time{}, 0, reason
	m.events = append(m.events, Lost{Lease: l.Lease, Reason: reason})
	m.followers(l, func(o *lease) { m.end(o, reason) })
}

// end loses a lease that is held, and ends any ballot for it.
func (m *Machine) end(l *lease, reason string) {
	if l.holds() {
		m.lose(l, reason)
	} else {
		m.drop(l, "")
	}
}

func (m *Machine) overdue(l *lease) string {
	since := m.now.Sub(l.renewed).Round(time.Millisecond)
	switch {
	case m.stuck():
		return fmt.Sprintf("this node has not acted on its leases for %v", m.now.Sub(m.unanswered).Round(time.Millisecond))
	case l.phase == granted:
		return fmt.Sprintf("this process did not run in time: it last renewed the lease %v ago", since)
	}
	return fmt.Sprintf("too few members answered for %v: of %s only %s",
		since, strings.Join(electorate.Names(m.active().Members), ", "), strings.Join(electorate.Names(l.votes), ", "))
}

// renew starts another round, with the same ballot if that is still valid.
func (m *Machine) renew(l *lease) {
	if l.outbid || l.phase == preparing {
		m.bid(l)
	} else {
		m.propose(l)
	}
}

// advance sets the time of a call. Leases that have ended are lost before anything else happens, because this process
// may not have run for a while.
func (m *Machine) advance(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	if !wake.Due(m.now, m.next) {
		return
	}
	for _, l := range m.own {
		if l.holds() && !m.now.Before(l.giveUp) {
			m.lose(l, m.overdue(l))
			m.slow()
		}
	}
}
