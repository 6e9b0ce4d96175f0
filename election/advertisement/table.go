package advertisement

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/herald-vip/herald/internal/wake"
)

const (
	// perHold is how often an offer is repeated while it holds: so many less one may be
	// lost or late.
	perHold = 4
	// packetRate is how many packets a second this member's offer is told with, on the
	// whole, and repeatRate how many of them repeat it: beyond these it is repeated less
	// often, and holds longer.
	packetRate, repeatRate = 1000, 800
	// minBurst is how many packets may go at once, and burstRounds how often all are told
	// at once, if that is more.
	minBurst, burstRounds = 100, 6
	// askAgain is how long an answer is waited for.
	askAgain = 20 * time.Millisecond
	// answerAgain is how long the questions of a member go unanswered after an answer.
	answerAgain = 5 * time.Millisecond
	// seekAfter is how long a member is waited for that another hears, after which it is
	// sought, and searches begin anew if it is not heard of for so long.
	seekAfter, forgetAfter = 250 * time.Millisecond, 5 * time.Second
	// seekAgain is how long it takes from one search to the next at first, and maxSeek
	// in the end.
	seekAgain, maxSeek = 500 * time.Millisecond, time.Minute
	// lateness is by how much this process may be late to find somebody silent and not
	// take itself for the one that slept, and reprieve how long there is then to read
	// what has been waiting.
	lateness, reprieve = 50 * time.Millisecond, 50 * time.Millisecond
)

// again is when a change is repeated, after it was first told.
var again = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}

// offers is what all members offer, this one included: it decides what is believed,
// when what was said holds no more, and when this member's own offer is told. It has no
// clock, sends nothing and knows no addresses.
//
// Members tell each other which process, or run, they are, and number what they say. The
// first offer of a run is believed only as the answer to a question, which has a number
// that nobody can guess or has used before: so what was recorded can be played back to no
// effect, and clocks, which may be set back between two runs, do not matter.
type table struct {
	self   string
	run    uint64
	lease  time.Duration
	number func() uint64 // of a question: any, as long as nobody can guess it

	own        *Advertisement // nil: nothing is told
	recipients int            // how many it is told to
	sequence   uint64         // of the last message
	repeats    int            // how often the last change has been repeated
	next       time.Time
	budget     float64 // packets that may be sent
	counted    time.Time

	entries map[string]*entry
	missing map[uint32]*missed // by the hashed name
	ignored uint64
}

// entry is what is known of another member.
type entry struct {
	advertisement Advertisement
	run           uint64 // 0: nothing is believed yet
	sequence      uint64
	received      time.Time
	until         time.Time // when it is silent
	timedOut      bool
	left          bool
	spared        bool // it has got more time, as this process was late

	question uint64 // that waits for an answer; 0: none
	asked    time.Time
	answered time.Time // its own question
}

// missed is a member that another hears and this one does not.
type missed struct {
	received time.Time     // of it, last
	seek     time.Time     // when it is to be sought
	pause    time.Duration // until it is sought again
}

func newTable(self string, run uint64, lease time.Duration, number func() uint64) *table {
	return &table{self: self, run: run, lease: lease, number: number,
		entries: make(map[string]*entry), missing: make(map[uint32]*missed)}
}

// setOwn makes this what the member offers. It reports whether that is new.
func (t *table) setOwn(now time.Time, own Advertisement) bool {
	if t.own != nil && t.own.equal(own) {
		return false
	}
	t.own = &own
	t.repeats = 0
	t.next = now
	return true
}

func (t *table) setLease(now time.Time, lease time.Duration) {
	if lease < t.lease {
		t.next = now
	}
	t.lease = lease
}

// interval is how long it takes from one repetition to the next.
func (t *table) interval() time.Duration {
	return max(t.lease/perHold, time.Duration(t.recipients)*time.Second/repeatRate)
}

// nextMessage is what is said next, once there is an offer.
func (t *table) nextMessage() message {
	t.sequence++
	m := message{From: t.self, Run: t.run, Sequence: t.sequence, Hold: max(t.lease, perHold*t.interval()), Advertisement: *t.own}
	for name, e := range t.entries {
		if e.received.IsZero() || e.timedOut {
			continue
		}
		if m.Peers = append(m.Peers, hashed(name)); len(m.Peers) == maxPeers {
			break
		}
	}
	return m
}

// broadcast returns what all recipients are to be told now, if anything.
func (t *table) broadcast(now time.Time, recipients int) (m message, ok bool) {
	t.recipients = recipients
	if t.own == nil || now.Before(t.next) {
		return m, false
	}
	burst := float64(max(minBurst, burstRounds*recipients))
	if t.counted.IsZero() {
		t.budget = burst
	}
	t.budget = min(burst, t.budget+now.Sub(t.counted).Seconds()*packetRate)
	t.counted = now
	if missing := math.Ceil(float64(recipients) - t.budget); missing > 0 {
		t.next = now.Add(time.Duration(missing) * time.Second / packetRate)
		return m, false
	}
	t.budget -= float64(recipients)
	t.next = now.Add(t.interval())
	if t.repeats < len(again) {
		t.next = now.Add(again[t.repeats])
		t.repeats++
	}
	return t.nextMessage(), true
}

// farewell is the last that all recipients are to be told, if they were told anything.
func (t *table) farewell() (m message, ok bool) {
	if t.own == nil || t.sequence == 0 {
		return m, false
	}
	m = t.nextMessage()
	m.Left = true
	return m, true
}

// reaction is what comes of a message.
type reaction struct {
	reply   *message // to its sender, or nil
	changed bool     // what is offered has
	seek    []uint32 // members that its sender hears and this one does not, by the hashes of their names
}

func (t *table) receive(now time.Time, m message) reaction {
	if m.From == t.self {
		t.ignored++
		return reaction{}
	}
	e := t.entries[m.From]
	if e == nil {
		e = new(entry)
		t.entries[m.From] = e
	}
	if m.Question != 0 {
		if t.own == nil || now.Sub(e.answered) < answerAgain {
			return reaction{}
		}
		e.answered = now
		answer := t.nextMessage()
		answer.Answer = m.Question
		return reaction{reply: &answer}
	}
	answers := m.Answer != 0 && m.Answer == e.question
	switch {
	case m.Run != e.run && !answers:
		return reaction{reply: t.ask(now, e)}
	case m.Run != e.run:
		e.run, e.sequence = m.Run, 0
	}
	if answers {
		e.question = 0
	}
	if m.Sequence <= e.sequence {
		t.ignored++
		return reaction{}
	}
	if e.received.IsZero() || e.timedOut && !m.Left {
		t.next = now // the others may not know of it
	}
	changed := e.received.IsZero() || e.timedOut != m.Left || e.left != m.Left || !e.advertisement.equal(m.Advertisement)
	e.advertisement, e.sequence, e.received, e.until, e.spared = m.Advertisement, m.Sequence, now, now.Add(m.Hold), false
	e.timedOut, e.left = m.Left, m.Left
	return reaction{changed: changed, seek: t.findMissing(now, m.Peers)}
}

// ask returns the question for what a member offers, unless it has been asked just now.
func (t *table) ask(now time.Time, e *entry) *message {
	if e.question != 0 && now.Sub(e.asked) < askAgain {
		return nil
	}
	for e.question == 0 {
		e.question = t.number()
	}
	e.asked = now
	return &message{From: t.self, Question: e.question}
}

// findMissing returns those members, by the hashes of their names, that somebody else hears and
// this one does not, and that are to be sought by now, as neither have heard of the
// other.
func (t *table) findMissing(now time.Time, hears []uint32) (lost []uint32) {
	heard := map[uint32]bool{hashed(t.self): true}
	for name, e := range t.entries {
		if !e.received.IsZero() && !e.timedOut {
			heard[hashed(name)] = true
		}
	}
	maps.DeleteFunc(t.missing, func(name uint32, m *missed) bool { return heard[name] || now.Sub(m.received) >= forgetAfter })
	for _, name := range hears {
		m := t.missing[name]
		switch {
		case heard[name] || m == nil && len(t.missing) >= maxPeers:
			continue
		case m == nil:
			m = &missed{seek: now.Add(seekAfter), pause: seekAgain}
			t.missing[name] = m
		case !now.Before(m.seek):
			m.seek, m.pause = now.Add(m.pause), min(2*m.pause, maxSeek)
			lost = append(lost, name)
		}
		m.received = now
	}
	return lost
}

func (t *table) markLeft(member string) {
	if e := t.entries[member]; e != nil {
		e.timedOut, e.left = true, true
	}
}

func (t *table) retain(member func(string) bool) {
	maps.DeleteFunc(t.entries, func(name string, _ *entry) bool { return !member(name) })
}

func (t *table) expire(now time.Time) {
	for _, e := range t.entries {
		late := now.Sub(e.until)
		switch {
		case e.timedOut || e.received.IsZero() || late < 0:
		case late > lateness && !e.spared:
			e.spared, e.until = true, now.Add(reprieve)
		default:
			e.timedOut = true
		}
	}
}

// due is when broadcast or expire have something to do next; the zero time is never.
func (t *table) due() time.Time {
	var due time.Time
	if t.own != nil {
		due = t.next
	}
	for _, e := range t.entries {
		if !e.timedOut && !e.received.IsZero() {
			due = wake.Earlier(due, e.until)
		}
	}
	return due
}

// list is what is offered now, except addresses, by the members' sorted names.
func (t *table) list(now time.Time) []MemberState {
	var all []MemberState
	if t.own != nil {
		all = append(all, MemberState{Member: t.self, Self: true, Advertisement: *t.own, Received: now})
	}
	for name, e := range t.entries {
		if !e.received.IsZero() {
			all = append(all, MemberState{Member: name, Advertisement: e.advertisement, TimedOut: e.timedOut, Left: e.left, Received: e.received})
		}
	}
	slices.SortFunc(all, func(a, b MemberState) int { return cmp.Compare(a.Member, b.Member) })
	return all
}
