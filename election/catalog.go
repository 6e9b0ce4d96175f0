package election

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
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
	// answerAgain is how long a member is not answered again.
	answerAgain = 5 * time.Millisecond
	// hearsay is how long a member is waited for that another hears, after which it is
	// sought, and searches begin anew if it is not heard of for so long.
	hearsay, rumour = 250 * time.Millisecond, 5 * time.Second
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

// catalog is what all members offer, this one included: it decides what is believed,
// when what was said holds no more, and when this member's own offer is told. It has no
// clock, sends nothing and knows no addresses.
//
// Members tell each other which process, or run, they are, and number what they say. The
// first offer of a run is believed only as the answer to a question, which has a number
// that nobody can guess or has used before: so what was recorded can be played back to no
// effect, and clocks, which may be set back between two runs, do not matter.
type catalog struct {
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

func newCatalog(self string, run uint64, lease time.Duration, number func() uint64) *catalog {
	return &catalog{self: self, run: run, lease: lease, number: number,
		entries: make(map[string]*entry), missing: make(map[uint32]*missed)}
}

// equal reports whether two offers are the same.
func (o Offer) equal(other Offer) bool {
	return o.Draining == other.Draining && maps.Equal(o.Checks, other.Checks)
}

// offer makes this what the member offers. It reports whether that is new.
func (c *catalog) offer(now time.Time, o Offer) bool {
	if c.own != nil && c.own.equal(o) {
		return false
	}
	c.own = &o
	c.repeats = 0
	c.next = now
	return true
}

// follow takes another length of leases.
func (c *catalog) follow(now time.Time, lease time.Duration) {
	if lease < c.lease {
		c.next = now
	}
	c.lease = lease
}

// interval is how long it takes from one repetition to the next.
func (c *catalog) interval() time.Duration {
	return max(c.lease/perHold, time.Duration(c.listeners)*time.Second/repeatRate)
}

// message is what is said next, once there is an offer.
func (c *catalog) message() offerMessage {
	c.sequence++
	m := offerMessage{From: c.self, Run: c.run, Sequence: c.sequence, Hold: max(c.lease, perHold*c.interval()), Offer: *c.own}
	for name, e := range c.entries {
		if e.heard.IsZero() || e.silent {
			continue
		}
		if m.Hears = append(m.Hears, hashed(name)); len(m.Hears) == maxHears {
			break
		}
	}
	return m
}

// round returns what all listeners are to be told now, if anything.
func (c *catalog) round(now time.Time, listeners int) (m offerMessage, ok bool) {
	c.listeners = listeners
	if c.own == nil || now.Before(c.next) {
		return m, false
	}
	burst := float64(max(minBurst, burstRounds*listeners))
	if c.counted.IsZero() {
		c.budget = burst
	}
	c.budget = min(burst, c.budget+now.Sub(c.counted).Seconds()*offerRate)
	c.counted = now
	if missing := math.Ceil(float64(listeners) - c.budget); missing > 0 {
		c.next = now.Add(time.Duration(missing) * time.Second / offerRate)
		return m, false
	}
	c.budget -= float64(listeners)
	c.next = now.Add(c.interval())
	if c.repeats < len(again) {
		c.next = now.Add(again[c.repeats])
		c.repeats++
	}
	return c.message(), true
}

// farewell is the last that all listeners are to be told, if they were told anything.
func (c *catalog) farewell() (m offerMessage, ok bool) {
	if c.own == nil || c.sequence == 0 {
		return m, false
	}
	m = c.message()
	m.Left = true
	return m, true
}

// reaction is what comes of a message.
type reaction struct {
	reply   *offerMessage // to its sender, or nil
	changed bool          // what is offered has
	seek    []uint32      // members that its sender hears and this one does not, by the hashes of their names
}

// receive takes a message of a member.
func (c *catalog) receive(now time.Time, m offerMessage) reaction {
	if m.From == c.self {
		c.ignored++
		return reaction{}
	}
	e := c.entries[m.From]
	if e == nil {
		e = new(entry)
		c.entries[m.From] = e
	}
	if m.Question != 0 {
		if c.own == nil || now.Sub(e.answered) < answerAgain {
			return reaction{}
		}
		e.answered = now
		answer := c.message()
		answer.Answer = m.Question
		return reaction{reply: &answer}
	}
	answers := m.Answer != 0 && m.Answer == e.question
	switch {
	case m.Run != e.run && !answers:
		return reaction{reply: c.ask(now, e)}
	case m.Run != e.run:
		e.run, e.sequence = m.Run, 0
	}
	if answers {
		e.question = 0
	}
	if m.Sequence <= e.sequence {
		c.ignored++
		return reaction{}
	}
	if e.heard.IsZero() || e.silent && !m.Left {
		c.next = now // the others may not know of it
	}
	changed := e.heard.IsZero() || e.silent != m.Left || e.left != m.Left || !e.offer.equal(m.Offer)
	e.offer, e.sequence, e.heard, e.until, e.spared = m.Offer, m.Sequence, now, now.Add(m.Hold), false
	e.silent, e.left = m.Left, m.Left
	return reaction{changed: changed, seek: c.seek(now, m.Hears)}
}

// ask returns the question for what a member offers, unless it has been asked just now.
func (c *catalog) ask(now time.Time, e *entry) *offerMessage {
	if e.question != 0 && now.Sub(e.asked) < askAgain {
		return nil
	}
	for e.question == 0 {
		e.question = c.number()
	}
	e.asked = now
	return &offerMessage{From: c.self, Question: e.question}
}

// seek returns those members, by the hashes of their names, that somebody else hears and
// this one does not, and that are to be sought by now, as neither have heard of the
// other.
func (c *catalog) seek(now time.Time, hears []uint32) (lost []uint32) {
	heard := map[uint32]bool{hashed(c.self): true}
	for name, e := range c.entries {
		if !e.heard.IsZero() && !e.silent {
			heard[hashed(name)] = true
		}
	}
	maps.DeleteFunc(c.missing, func(name uint32, m *missed) bool { return heard[name] || now.Sub(m.heard) >= rumour })
	for _, name := range hears {
		m := c.missing[name]
		switch {
		case heard[name] || m == nil && len(c.missing) >= maxHears:
			continue
		case m == nil:
			m = &missed{seek: now.Add(hearsay), pause: seekAgain}
			c.missing[name] = m
		case !now.Before(m.seek):
			m.seek, m.pause = now.Add(m.pause), min(2*m.pause, maxSeek)
			lost = append(lost, name)
		}
		m.heard = now
	}
	return lost
}

// gone takes note that a member has left.
func (c *catalog) gone(member string) {
	if e := c.entries[member]; e != nil {
		e.silent, e.left = true, true
	}
}

// keep forgets all but these members.
func (c *catalog) keep(member func(string) bool) {
	maps.DeleteFunc(c.entries, func(name string, _ *entry) bool { return !member(name) })
}

// expire finds who is silent by now.
func (c *catalog) expire(now time.Time) {
	for _, e := range c.entries {
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

// due is when round or expire have something to do next; the zero time is never.
func (c *catalog) due() time.Time {
	var due time.Time
	sooner := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	if c.own != nil {
		sooner(c.next)
	}
	for _, e := range c.entries {
		if !e.silent && !e.heard.IsZero() {
			sooner(e.until)
		}
	}
	return due
}

// list is what is offered now, but for addresses, by the members' sorted names.
func (c *catalog) list(now time.Time) []Offered {
	var all []Offered
	if c.own != nil {
		all = append(all, Offered{Member: c.self, Self: true, Offer: *c.own, Heard: now})
	}
	for name, e := range c.entries {
		if !e.heard.IsZero() {
			all = append(all, Offered{Member: name, Offer: e.offer, Silent: e.silent, Left: e.left, Heard: e.heard})
		}
	}
	slices.SortFunc(all, func(a, b Offered) int { return cmp.Compare(a.Member, b.Member) })
	return all
}
