package advertisement

import (
	"slices"
	"testing"
	"time"
)

// fair returns the table of a new member, with challenges 1, 2 and so on.
func fair(self string, run uint64) *table {
	asked := uint64(0)
	return newTable(self, run, 600*time.Millisecond, func() uint64 { asked++; return asked })
}

// with sets its own advertisement.
func (t *table) with(own Advertisement) *table {
	t.setOwn(time.Unix(1000, 0), own)
	return t
}

// meet makes c believe the advertisement of other, by a challenge and its response.
func meet(t *testing.T, now time.Time, c, other *table) {
	t.Helper()
	challenge := c.receive(now, other.nextMessage()).reply
	if challenge == nil {
		t.Fatal("an unknown member is not challenged")
	}
	answer := other.receive(now, *challenge).reply
	if answer == nil {
		t.Fatal("a challenge is not answered")
	}
	if result := c.receive(now, *answer); result.reply != nil || !result.changed {
		t.Fatalf("a response causes %+v", result)
	}
}

// only returns the state of the only other member in a table.
func only(t *testing.T, c *table, now time.Time) MemberState {
	t.Helper()
	for _, o := range c.list(now) {
		if !o.Self {
			return o
		}
	}
	t.Fatal("no advertisement of another member")
	return MemberState{}
}

func TestTableBelievesResponses(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := fair("a", 1), fair("b", 9)
	b.setOwn(now, Advertisement{Checks: map[string]bool{"apiserver": true}})
	m := b.nextMessage()
	result := a.receive(now, m)
	if result.reply == nil || result.reply.Challenge == 0 || result.reply.From != "a" || result.changed || len(a.list(now)) > 0 {
		t.Fatalf("an unknown run is believed: %+v %v", result, a.list(now))
	}
	if a.receive(now.Add(askAgain/2), m).reply != nil {
		t.Fatal("it is challenged again at once")
	}
	if again := a.receive(now.Add(askAgain), m).reply; again == nil || again.Challenge != result.reply.Challenge {
		t.Fatalf("it is challenged by %v", again)
	}
	if fair("c", 7).receive(now, *result.reply).reply != nil {
		t.Fatal("a member without an advertisement answers")
	}
	b.receive(now, *result.reply)
	if b.receive(now.Add(answerAgain/2), *result.reply).reply != nil {
		t.Fatal("a member is answered again at once")
	}
	meet(t, now.Add(time.Second), a, b)
	if o := only(t, a, now); o.Member != "b" || !o.Advertisement.Checks["apiserver"] || o.TimedOut || o.Left {
		t.Fatalf("%+v", o)
	}
}

func TestTableIgnoresOldMessages(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := fair("a", 1), fair("b", 9)
	advertise := func(healthy bool) message {
		b.setOwn(now, Advertisement{Checks: map[string]bool{"apiserver": healthy}})
		return b.nextMessage()
	}
	first := advertise(true)
	meet(t, now, a, b)
	late, last := advertise(true), advertise(false)
	if !a.receive(now, last).changed {
		t.Fatal("a change is ignored")
	}
	for name, old := range map[string]message{"recorded": first, "overtaken": late, "repeated": last} {
		ignored := a.ignored
		if result := a.receive(now, old); result.reply != nil || result.changed || only(t, a, now).Advertisement.Checks["apiserver"] || a.ignored != ignored+1 {
			t.Errorf("a %s message is accepted", name)
		}
	}
	if a.receive(now, b.nextMessage()).changed {
		t.Error("a repetition counts as a change")
	}
	b.setOwn(now, Advertisement{Passing: true, Checks: map[string]bool{"apiserver": false}})
	if !a.receive(now, b.nextMessage()).changed || !only(t, a, now).Advertisement.Passing {
		t.Error("a change of Passing is no change")
	}
	if a.receive(now, message{From: "a", Run: 5, Sequence: 1}).reply != nil || len(a.list(now)) > 1 {
		t.Error("it believes a sender with its own name")
	}
}

// TestTableFollowsTheRespondingRun checks that messages and responses of an earlier run are ignored once a later run
// has begun, even with a lesser number. No response is valid twice.
func TestTableFollowsTheRespondingRun(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := fair("a", 1), fair("b", 9)
	b.setOwn(now, Advertisement{Checks: map[string]bool{"apiserver": true}})
	challenge := a.receive(now, b.nextMessage()).reply
	answer := b.receive(now, *challenge).reply
	a.receive(now, *answer)
	said := b.nextMessage()
	a.receive(now, said)

	again := fair("b", 3) // after its clock was set back
	again.setOwn(now, Advertisement{Draining: true})
	meet(t, now, a, again)
	if o := only(t, a, now); !o.Advertisement.Draining {
		t.Fatalf("%+v", o)
	}
	for name, old := range map[string]message{"said": said, "answered": *answer} {
		now = now.Add(time.Second)
		result := a.receive(now, old)
		if result.changed || result.reply == nil || result.reply.Challenge <= 2 || !only(t, a, now).Advertisement.Draining {
			t.Errorf("a message that an earlier run %s is believed: %+v", name, result)
		}
		if a.receive(now, *again.receive(now, *result.reply).reply).changed || a.entries["b"].challenge != 0 {
			t.Errorf("the present run does not correct it")
		}
	}
}

func TestTableDetectsTimeouts(t *testing.T) {
	began := time.Unix(1000, 0)
	a, b := fair("a", 1), fair("b", 9)
	b.setOwn(began, Advertisement{})
	meet(t, began, a, b)
	silent := func(after time.Duration) bool {
		a.expire(began.Add(after))
		return only(t, a, began).TimedOut
	}
	if due := a.due(); !due.Equal(began.Add(b.lease)) {
		t.Errorf("the first timeout is at %v", due)
	}
	if silent(b.lease-1) || !silent(b.lease) {
		t.Error("it has not timed out after one lease")
	}
	if !a.due().IsZero() {
		t.Error("there is another timeout")
	}
	if !a.receive(began.Add(time.Second), b.nextMessage()).changed || only(t, a, began).TimedOut || only(t, a, began).Left {
		t.Error("a member that was received again has timed out")
	}
	m, _ := b.farewell()
	if !a.receive(began.Add(time.Second), m).changed || !only(t, a, began).TimedOut || !only(t, a, began).Left {
		t.Error("a member that left has not timed out")
	}
	meet(t, began, a, fair("b", 10).with(Advertisement{}))
	a.markLeft("b")
	if o := only(t, a, began); !o.TimedOut || !o.Left {
		t.Error("a member reported as left has not timed out")
	}
	a.markLeft("nobody")
	a.retain(func(string) bool { return false })
	if len(a.list(began)) > 0 {
		t.Error("a former member is kept")
	}
}

// TestOwnPauseCausesNoTimeouts checks that a process that was stopped reads waiting messages before others time out.
func TestOwnPauseCausesNoTimeouts(t *testing.T) {
	began := time.Unix(1000, 0)
	a, b := fair("a", 1), fair("b", 9)
	b.setOwn(began, Advertisement{})
	meet(t, began, a, b)
	resumed := began.Add(10 * time.Second)
	a.expire(resumed)
	if only(t, a, resumed).TimedOut || !a.due().Equal(resumed.Add(reprieve)) {
		t.Errorf("the other times out at once; next at %v", a.due())
	}
	a.expire(resumed.Add(time.Hour)) // late again: one reprieve is enough
	if !only(t, a, resumed).TimedOut {
		t.Error("the other never times out")
	}
}

func TestRepetition(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, test := range []struct {
		recipients int
		interval   time.Duration
	}{{0, 150 * time.Millisecond}, {5, 150 * time.Millisecond}, {100, 150 * time.Millisecond}, {400, 500 * time.Millisecond}, {1024, 1280 * time.Millisecond}} {
		c := fair("a", 1)
		if _, ok := c.broadcast(began, test.recipients); ok || !c.due().IsZero() {
			t.Fatal("a message is sent before there is an advertisement")
		}
		if _, ok := c.farewell(); ok {
			t.Fatal("a member that advertised nothing sends a farewell")
		}
		c.setOwn(began, Advertisement{})
		if c.setOwn(began, Advertisement{}) {
			t.Error("the same advertisement is new")
		}
		var said []time.Duration
		for now := began; now.Before(began.Add(20 * time.Second)); now = c.due() {
			if m, ok := c.broadcast(now, test.recipients); ok {
				said = append(said, now.Sub(began))
				if m.Hold != perHold*test.interval || m.Sequence != uint64(len(said)) {
					t.Fatalf("%d recipients, after %v: %+v", test.recipients, now.Sub(began), m)
				}
			}
		}
		for i, want := range []time.Duration{0, again[0], again[0] + again[1], again[0] + again[1] + test.interval} {
			if said[i] != want {
				t.Errorf("%d recipients: sent at %v", test.recipients, said[:4])
				break
			}
		}
		if sent := float64(len(said)*test.recipients) / 20; sent > packetRate {
			t.Errorf("%d recipients: %v packets a second", test.recipients, sent)
		}
	}
}

// TestRateLimit checks that a member with flapping checks sends at a limited rate.
func TestRateLimit(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, recipients := range []int{3, 100, 1000} {
		c := fair("a", 1)
		sent, last := 0, began
		for now := began; now.Before(began.Add(10 * time.Second)); now = now.Add(time.Millisecond) {
			c.setOwn(now, Advertisement{Checks: map[string]bool{"apiserver": now.UnixMilli()%2 == 0}})
			if _, ok := c.broadcast(now, recipients); ok {
				sent, last = sent+recipients, now
			}
			if !c.due().After(now) {
				t.Fatalf("%d recipients: nothing was done at %v that was due at %v", recipients, now, c.due())
			}
			if silence := now.Sub(last); silence > c.nextMessage().Hold/2 {
				t.Fatalf("%d recipients: no message for %v", recipients, silence)
			}
		}
		if most := 10*packetRate + max(minBurst, burstRounds*recipients); sent > most || sent < most/2 {
			t.Errorf("%d recipients: %d packets", recipients, sent)
		}
	}
}

// TestSearchForMissingMembers checks that a member that another receives is searched for at growing intervals, until
// it is received or the other no longer mentions it.
func TestSearchForMissingMembers(t *testing.T) {
	began := time.Unix(1000, 0)
	a, b, far := fair("a", 1), fair("b", 9), fair("far", 5)
	b.setOwn(began, Advertisement{})
	far.setOwn(began, Advertisement{})
	meet(t, began, b, far)
	meet(t, began, a, b)
	search := func(limit time.Duration) (sought []time.Duration) {
		for after := 100 * time.Millisecond; after <= limit; after += 100 * time.Millisecond {
			b.receive(began.Add(after), far.nextMessage())
			if result := a.receive(began.Add(after), b.nextMessage()); len(result.seek) == 1 && result.seek[0] == hashed("far") {
				sought = append(sought, after)
			}
		}
		return sought
	}
	if sought := search(10 * time.Second); !slices.Equal(sought, []time.Duration{
		300 * time.Millisecond, 800 * time.Millisecond, 1800 * time.Millisecond, 3800 * time.Millisecond, 7800 * time.Millisecond,
	}) {
		t.Errorf("searched for at %v", sought)
	}
	began = began.Add(10 * time.Second)
	meet(t, began, a, far)
	if sought := search(time.Second); len(sought) > 0 || len(a.missing) > 0 {
		t.Errorf("a received member is searched for at %v", sought)
	}
	claims := make([]uint32, 10*maxPeers)
	for i := range claims {
		claims[i] = uint32(i)
	}
	if a.findMissing(began, claims); len(a.missing) > maxPeers {
		t.Errorf("%d members are missing", len(a.missing))
	}
	if a.findMissing(began.Add(forgetAfter), nil); len(a.missing) > 0 {
		t.Error("members that no peer mentions are still missing")
	}
}

// TestNewPeersAreMentionedAtOnce checks that a member mentions a new member at once.
func TestNewPeersAreMentionedAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	a, b := fair("a", 1).with(Advertisement{}), fair("b", 9).with(Advertisement{})
	for range again {
		a.broadcast(now, 5)
		now = a.due()
	}
	a.broadcast(now, 5)
	if !a.due().Equal(now.Add(a.interval())) {
		t.Fatalf("at %v, the next is due at %v", now, a.due())
	}
	meet(t, now, a, b)
	if m, ok := a.broadcast(now, 5); !ok || !slices.Equal(m.Peers, []uint32{hashed("b")}) {
		t.Errorf("it sends %+v, %v", m, ok)
	}
}
