package offer

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
	// offerRate is how many packets a second this member's offer is told with, on the
	// whole, and repeatRate how many of them repeat it: beyond these it is repeated less
	// often, and holds longer.
	offerRate, repeatRate = 1000, 800
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
type offers struct {
	self   string
	run    uint64
	lease  time.Duration
	number func() uint64 // of a question: any, as long as nobody can guess it

	own       *Offer // nil: nothing is told
	listeners int    // how many it is told to
	sequence  uint64 // of the last message
	repeats   int    // how often the last change has been repeated
	next      time.Time
	budget    float64 // packets that may be sent
	counted   time.Time

	entries map[string]*entry
	missing map[uint32]*missed // by the hashed name
	ignored uint64
}

// entry is what is known of another member.
type entry struct {
	offer    Offer
	run      uint64 // 0: nothing is believed yet
	sequence uint64
	heard    time.Time
	until    time.Time // when it is silent
	silent   bool
	left     bool
	spared   bool // it has got more time, as this process was late

	question uint64 // that waits for an answer; 0: none
	asked    time.Time
	answered time.Time // its own question
}

// missed is a member that another hears and this one does not.
type missed struct {
	heard time.Time     // of it, last
	seek  time.Time     // when it is to be sought
	pause time.Duration // until it is sought again
}

func newOffers(self string, run uint64, lease time.Duration, number func() uint64) *offers {
	return &offers{self: self, run: run, lease: lease, number: number,
		entries: make(map[string]*entry), missing: make(map[uint32]*missed)}
}

// setOwn makes this what the member offers. It reports whether that is new.
func (o *offers) setOwn(now time.Time, own Offer) bool {
	if o.own != nil && o.own.equal(own) {
		return false
	}
	o.own = &own
	o.repeats = 0
	o.next = now
	return true
}

func (o *offers) setLease(now time.Time, lease time.Duration) {
	if lease < o.lease {
		o.next = now
	}
	o.lease = lease
}

// interval is how long it takes from one repetition to the next.
func (o *offers) interval() time.Duration {
	return max(o.lease/perHold, time.Duration(o.listeners)*time.Second/repeatRate)
}

// nextMessage is what is said next, once there is an offer.
func (o *offers) nextMessage() message {
	o.sequence++
	m := message{From: o.self, Run: o.run, Sequence: o.sequence, Hold: max(o.lease, perHold*o.interval()), Offer: *o.own}
	for name, e := range o.entries {
		if e.heard.IsZero() || e.silent {
			continue
		}
		if m.Hears = append(m.Hears, hashed(name)); len(m.Hears) == maxHears {
			break
		}
	}
	return m
}

// broadcast returns what all listeners are to be told now, if anything.
func (o *offers) broadcast(now time.Time, listeners int) (m message, ok bool) {
	o.listeners = listeners
	if o.own == nil || now.Before(o.next) {
		return m, false
	}
	burst := float64(max(minBurst, burstRounds*listeners))
	if o.counted.IsZero() {
		o.budget = burst
	}
	o.budget = min(burst, o.budget+now.Sub(o.counted).Seconds()*offerRate)
	o.counted = now
	if missing := math.Ceil(float64(listeners) - o.budget); missing > 0 {
		o.next = now.Add(time.Duration(missing) * time.Second / offerRate)
		return m, false
	}
	o.budget -= float64(listeners)
	o.next = now.Add(o.interval())
	if o.repeats < len(again) {
		o.next = now.Add(again[o.repeats])
		o.repeats++
	}
	return o.nextMessage(), true
}

// farewell is the last that all listeners are to be told, if they were told anything.
func (o *offers) farewell() (m message, ok bool) {
	if o.own == nil || o.sequence == 0 {
		return m, false
	}
	m = o.nextMessage()
	m.Left = true
	return m, true
}

// reaction is what comes of a message.
type reaction struct {
	reply   *message // to its sender, or nil
	changed bool     // what is offered has
	seek    []uint32 // members that its sender hears and this one does not, by the hashes of their names
}

func (o *offers) receive(now time.Time, m message) reaction {
	if m.From == o.self {
		o.ignored++
		return reaction{}
	}
	e := o.entries[m.From]
	if e == nil {
		e = new(entry)
		o.entries[m.From] = e
	}
	if m.Question != 0 {
		if o.own == nil || now.Sub(e.answered) < answerAgain {
			return reaction{}
		}
		e.answered = now
		answer := o.nextMessage()
		answer.Answer = m.Question
		return reaction{reply: &answer}
	}
	answers := m.Answer != 0 && m.Answer == e.question
	switch {
	case m.Run != e.run && !answers:
		return reaction{reply: o.ask(now, e)}
	case m.Run != e.run:
		e.run, e.sequence = m.Run, 0
	}
	if answers {
		e.question = 0
	}
	if m.Sequence <= e.sequence {
		o.ignored++
		return reaction{}
	}
	if e.heard.IsZero() || e.silent && !m.Left {
		o.next = now // the others may not know of it
	}
	changed := e.heard.IsZero() || e.silent != m.Left || e.left != m.Left || !e.offer.equal(m.Offer)
	e.offer, e.sequence, e.heard, e.until, e.spared = m.Offer, m.Sequence, now, now.Add(m.Hold), false
	e.silent, e.left = m.Left, m.Left
	return reaction{changed: changed, seek: o.findMissing(now, m.Hears)}
}

// ask returns the question for what a member offers, unless it has been asked just now.
func (o *offers) ask(now time.Time, e *entry) *message {
	if e.question != 0 && now.Sub(e.asked) < askAgain {
		return nil
	}
	for e.question == 0 {
		e.question = o.number()
	}
	e.asked = now
	return &message{From: o.self, Question: e.question}
}

// findMissing returns those members, by the hashes of their names, that somebody else hears and
// this one does not, and that are to be sought by now, as neither have heard of the
// other.
func (o *offers) findMissing(now time.Time, hears []uint32) (lost []uint32) {
	heard := map[uint32]bool{hashed(o.self): true}
	for name, e := range o.entries {
		if !e.heard.IsZero() && !e.silent {
			heard[hashed(name)] = true
		}
	}
	maps.DeleteFunc(o.missing, func(name uint32, m *missed) bool { return heard[name] || now.Sub(m.heard) >= forgetAfter })
	for _, name := range hears {
		m := o.missing[name]
		switch {
		case heard[name] || m == nil && len(o.missing) >= maxHears:
			continue
		case m == nil:
			m = &missed{seek: now.Add(seekAfter), pause: seekAgain}
			o.missing[name] = m
		case !now.Before(m.seek):
			m.seek, m.pause = now.Add(m.pause), min(2*m.pause, maxSeek)
			lost = append(lost, name)
		}
		m.heard = now
	}
	return lost
}

func (o *offers) markLeft(member string) {
	if e := o.entries[member]; e != nil {
		e.silent, e.left = true, true
	}
}

func (o *offers) retain(member func(string) bool) {
	maps.DeleteFunc(o.entries, func(name string, _ *entry) bool { return !member(name) })
}

func (o *offers) expire(now time.Time) {
	for _, e := range o.entries {
		late := now.Sub(e.until)
		switch {
		case e.silent || e.heard.IsZero() || late < 0:
		case late > lateness && !e.spared:
			e.spared, e.until = true, now.Add(reprieve)
		default:
			e.silent = true
		}
	}
}

// due is when broadcast or expire have something to do next; the zero time is never.
func (o *offers) due() time.Time {
	var due time.Time
	if o.own != nil {
		due = o.next
	}
	for _, e := range o.entries {
		if !e.silent && !e.heard.IsZero() {
			due = wake.Earlier(due, e.until)
		}
	}
	return due
}

// list is what is offered now, except addresses, by the members' sorted names.
func (o *offers) list(now time.Time) []Offered {
	var all []Offered
	if o.own != nil {
		all = append(all, Offered{Member: o.self, Self: true, Offer: *o.own, Heard: now})
	}
	for name, e := range o.entries {
		if !e.heard.IsZero() {
			all = append(all, Offered{Member: name, Offer: e.offer, Silent: e.silent, Left: e.left, Heard: e.heard})
		}
	}
	slices.SortFunc(all, func(a, b Offered) int { return cmp.Compare(a.Member, b.Member) })
	return all
}
