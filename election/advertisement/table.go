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
	// perHold is the number of repetitions within the hold time; all but one may be lost or late.
	perHold = 4
	// packetRate is the mean rate of this member's advertisements in packets per second, and repeatRate the share of
	// repetitions. Above these rates, repetitions are rarer and hold times longer.
	packetRate, repeatRate = 1000, 800
	// minBurst is the maximum burst in packets, or enough for burstRounds rounds to all recipients if that is more.
	minBurst, burstRounds = 100, 6
	// askAgain is the time to wait for a response.
	askAgain = 20 * time.Millisecond
	// answerAgain is the minimum time between responses to a member.
	answerAgain = 5 * time.Millisecond
	// seekAfter is the time before a member that another receives, and this one does not, is searched for. Searches
	// begin anew after forgetAfter without mention of it.
	seekAfter, forgetAfter = 250 * time.Millisecond, 5 * time.Second
	// lateness is the delay of this process above which it assumes that it was stopped itself. It then reads waiting
	// messages for the time of reprieve before a member times out.
	lateness, reprieve = 50 * time.Millisecond, 50 * time.Millisecond
)

// seekPauses separate the searches.
var seekPauses = wake.Backoff{Min: 500 * time.Millisecond, Max: time.Minute}

// again lists the delays of repetitions after a change.
var again = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}

// table holds the advertisements of all members, this one included. It decides which messages to believe, when they
// time out, and when to send this member's own. It has no clock, sends nothing and knows no addresses.
//
// Messages carry the sender's run, that is its process, and a sequence number. The first advertisement of a run is
// believed only as the response to a challenge with a random, unused number. So replayed messages have no effect, and
// clocks that are set back between two runs do no harm.
type table struct {
	self   string
	run    uint64
	lease  time.Duration
	number func() uint64 // returns an unpredictable number for a challenge

	own        *Advertisement // nil: advertise nothing
	recipients int            // number of recipients
	sequence   uint64         // of the last message
	repeats    int            // of the last change
	next       time.Time
	budget     float64 // packets that may be sent
	counted    time.Time

	entries map[string]*entry
	missing map[uint32]*missed // by hashed name
	ignored uint64
}

// entry is the state of another member.
type entry struct {
	advertisement Advertisement
	run           uint64 // 0: none believed yet
	sequence      uint64
	received      time.Time
	until         time.Time // when it times out
	timedOut      bool
	left          bool
	spared        bool // has had its reprieve

	challenge uint64 // waits for a response; 0: none
	asked     time.Time
	answered  time.Time // last response to its own challenge
}

// missed is a member that another receives and this one does not.
type missed struct {
	received time.Time // last mention of it
	seek     time.Time // next search
	searches int
}

func newTable(self string, run uint64, lease time.Duration, number func() uint64) *table {
	return &table{self: self, run: run, lease: lease, number: number,
		entries: make(map[string]*entry), missing: make(map[uint32]*missed)}
}

// setOwn sets this member's advertisement and reports whether it has changed.
func (t *table) setOwn(now time.Time, own Advertisement) bool {
	if t.own != nil && t.own.equal(own) {
		return false
	}
	t.own = &own
	t.repeats = 0
	t.next = now
	return true
}

// interval returns the time between repetitions.
func (t *table) interval() time.Duration {
	return max(t.lease/perHold, time.Duration(t.recipients)*time.Second/repeatRate)
}

// nextMessage returns the next advertisement; own must not be nil.
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

// broadcast returns the message due for all recipients, if any.
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

// farewell returns the last message for all recipients, unless they have received none.
func (t *table) farewell() (m message, ok bool) {
	if t.own == nil || t.sequence == 0 {
		return m, false
	}
	m = t.nextMessage()
	m.Left = true
	return m, true
}

// reaction is the effect of a message.
type reaction struct {
	reply   *message // to its sender; nil: none
	changed bool     // an advertisement has changed
	seek    []uint32 // hashed names of members to search for
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
	if m.Challenge != 0 {
		if t.own == nil || now.Sub(e.answered) < answerAgain {
			return reaction{}
		}
		e.answered = now
		answer := t.nextMessage()
		answer.Response = m.Challenge
		return reaction{reply: &answer}
	}
	answers := m.Response != 0 && m.Response == e.challenge
	switch {
	case m.Run != e.run && !answers:
		return reaction{reply: t.ask(now, e)}
	case m.Run != e.run:
		e.run, e.sequence = m.Run, 0
	}
	if answers {
		e.challenge = 0
	}
	if m.Sequence <= e.sequence {
		t.ignored++
		return reaction{}
	}
	if e.received.IsZero() || e.timedOut && !m.Left {
		t.next = now // other members may not know of it
	}
	changed := e.received.IsZero() || e.timedOut != m.Left || e.left != m.Left || !e.advertisement.equal(m.Advertisement)
	e.advertisement, e.sequence, e.received, e.until, e.spared = m.Advertisement, m.Sequence, now, now.Add(m.Hold), false
	e.timedOut, e.left = m.Left, m.Left
	return reaction{changed: changed, seek: t.findMissing(now, m.Peers)}
}

// ask returns a challenge for a member, unless one was sent just now.
func (t *table) ask(now time.Time, e *entry) *message {
	if e.challenge != 0 && now.Sub(e.asked) < askAgain {
		return nil
	}
	for e.challenge == 0 {
		e.challenge = t.number()
	}
	e.asked = now
	return &message{From: t.self, Challenge: e.challenge}
}

// findMissing returns the hashed names of members to search for now. A peer receives them and this member does not:
// neither knows of the other.
func (t *table) findMissing(now time.Time, peers []uint32) (lost []uint32) {
	heard := map[uint32]bool{hashed(t.self): true}
	for name, e := range t.entries {
		if !e.received.IsZero() && !e.timedOut {
			heard[hashed(name)] = true
		}
	}
	maps.DeleteFunc(t.missing, func(name uint32, m *missed) bool { return heard[name] || now.Sub(m.received) >= forgetAfter })
	for _, name := range peers {
		m := t.missing[name]
		switch {
		case heard[name] || m == nil && len(t.missing) >= maxPeers:
			continue
		case m == nil:
			m = &missed{seek: now.Add(seekAfter)}
			t.missing[name] = m
		case !now.Before(m.seek):
			m.searches++
			m.seek = now.Add(seekPauses.After(m.searches))
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

// due returns the time of the next work for broadcast or expire; zero means never.
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

// list returns the states of all members, without addresses, sorted by name.
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
