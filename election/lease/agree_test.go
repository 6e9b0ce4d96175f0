package lease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
	"github.com/herald-vip/herald/testenv/must"
)

// alone is a machine, m2. The test plays the other members.
type alone struct {
	*lease.Machine
	t        *testing.T
	now      time.Time
	record   electorate.Committed
	sequence map[string]uint64
	sent     []message.Outgoing // by the last call
	disk     lease.State
	writes   int
	slow     bool // the test writes to the disk
}

// newAlone starts m2 with a state. Unless early, all its old votes have ended.
func newAlone(t *testing.T, s lease.State, e electorate.Electorate, early bool) *alone {
	t.Helper()
	a := newAloneIn(t, s, e, nil)
	if !early {
		a.wait(2 * duration)
	}
	a.writes = 0
	return a
}

// newAloneIn starts m2, in an open electorate unless that is nil.
func newAloneIn(t *testing.T, s lease.State, e electorate.Electorate, open *lease.Open) *alone {
	t.Helper()
	a := &alone{t: t, now: time.Unix(1_000_000, 0), record: s.Committed, sequence: map[string]uint64{}}
	m, err := lease.New(a.now, lease.Options{Self: "m2", Incarnation: 1, Electorate: e, Open: open, State: s, Observers: 8})
	if err != nil {
		t.Fatal(err)
	}
	a.Machine, a.disk = m, s
	return a
}

// atRecord returns the state of a member with committed electorate number of the cluster that voters began.
func atRecord(number uint64, e electorate.Electorate) lease.State {
	r := electorate.First(e, 1)
	r.Number = number
	return lease.State{Committed: r, Longest: e.Duration}
}

func (a *alone) wait(d time.Duration) {
	for end := a.now.Add(d); a.now.Before(end); {
		a.now = a.now.Add(step)
		a.Tick(a.now)
		a.take()
	}
}

func (a *alone) take() {
	for !a.slow && a.write() {
		a.stored()
	}
	out, _ := a.Take()
	a.sent = append(a.sent, out...)
}

// write puts an unsaved state on the disk, and reports whether there was one.
func (a *alone) write() bool {
	s, changed := a.Unsaved()
	if changed {
		a.disk = s
		a.writes++
	}
	return changed
}

// stored tells the machine that its state is on disk.
func (a *alone) stored() {
	a.Stored(a.now)
	if a.slow {
		a.sent = nil
		a.take()
	}
}

// message returns a current message of a peer with the same committed and desired electorate.
func (a *alone) message(from string) message.Message {
	a.sequence[from]++
	return message.Message{
		From: from, Incarnation: 1, Receiver: message.Identity("m2", 1), Sequence: a.sequence[from],
		Cluster: a.record.Cluster, Number: a.record.Number, Active: a.record.Electorate.Digest(), Desired: a.record.Electorate.Digest(),
	}
}

// hear receives an edited message and returns the first change and the items sent back.
func (a *alone) hear(from string, edit func(*message.Message)) (*message.Change, []message.Item) {
	m := a.message(from)
	edit(&m)
	a.sent = nil
	a.Receive(a.now, m)
	a.take()
	return a.said(from)
}

func (a *alone) said(dst string) (c *message.Change, items []message.Item) {
	for _, o := range a.sent {
		if o.To == dst {
			items = append(items, o.Items...)
			if c == nil {
				c = o.Change
			}
		}
	}
	return c, items
}

func (a *alone) change(from string, c message.Change) *message.Change {
	answer, _ := a.hear(from, func(m *message.Message) { m.Change = &c })
	return answer
}

func (a *alone) number() uint64 { return a.Status(a.now).Number }

func expect(t *testing.T, what string, c *message.Change, want message.Phase) {
	t.Helper()
	switch {
	case c == nil && want != 0:
		t.Fatalf("%s: no answer, want phase %d", what, want)
	case c != nil && c.Phase != want:
		t.Fatalf("%s: %+v, want phase %d", what, *c, want)
	}
}

func ballot(counter uint64, member string) message.Ballot {
	return message.Ballot{Counter: counter, Owner: message.Identity(member, 1)}
}

func asked(counter uint64, member string) message.Change {
	return message.Change{Phase: message.Asked, Ballot: ballot(counter, member)}
}

func proposed(counter uint64, member string, e electorate.Electorate) message.Change {
	return message.Change{Phase: message.Proposed, Ballot: ballot(counter, member), Value: &e}
}

// TestAcceptorOfChanges steps through the acceptor.
func TestAcceptorOfChanges(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(1, three), three, true)
	a.wait(duration)
	expect(t, "started recently, asked", a.change("m1", asked(1, "m1")), 0)
	expect(t, "started recently, proposed", a.change("m1", proposed(1, "m1", voters("m1 m2"))), 0)
	a.wait(duration)

	expect(t, "absurd", a.change("m1", asked(1<<50, "m1")), 0)
	expect(t, "from a member without a vote", a.change("m9", asked(1, "m9")), 0)
	expect(t, "asked", a.change("m1", asked(5, "m1")), message.Promised)
	if s := a.disk; a.writes != 1 || s.Promised != (ballot(5, "m1")) {
		t.Fatalf("after a promise: %+v, %d writes", s, a.writes)
	}
	expect(t, "asked by a lesser ballot", a.change("m3", asked(4, "m3")), message.Refused)
	expect(t, "proposed by a lesser ballot", a.change("m3", proposed(4, "m3", voters("m1 m2"))), message.Refused)
	if a.writes != 1 {
		t.Error("a refusal has changed something")
	}

	expect(t, "two members away", a.change("m1", proposed(5, "m1", voters("m1 m2 m3 m4 m5"))), 0)
	expect(t, "another in place of one", a.change("m1", proposed(5, "m1", voters("m1 m2 m4"))), 0)
	invalid := voters("m1 m2")
	invalid.Duration = 0
	expect(t, "invalid", a.change("m1", proposed(5, "m1", invalid)), 0)
	expect(t, "nothing", a.change("m1", message.Change{Phase: message.Proposed, Ballot: ballot(5, "m1")}), 0)

	expect(t, "proposed by a greater ballot", a.change("m3", proposed(9, "m3", voters("m2 m3"))), message.Accepted)
	s := a.disk
	if b := (ballot(9, "m3")); a.writes != 2 || s.Accepted != b || s.Promised != b || s.Value == nil {
		t.Fatalf("after it accepted: %+v, %d writes", s, a.writes)
	}
	expect(t, "asked by a ballot below the accepted one", a.change("m1", asked(8, "m1")), message.Refused)
	c := a.change("m1", asked(10, "m1"))
	expect(t, "asked again", c, message.Promised)
	if c.Value == nil || c.Value.Digest() != voters("m2 m3").Digest() || c.Accepted.Counter != 9 {
		t.Errorf("promise %+v does not report the accepted value", c)
	}

	// The same after a restart.
	a = newAlone(t, a.disk, three, false)
	expect(t, "asked by a lesser ballot after a restart", a.change("m3", asked(9, "m3")), message.Refused)
	if c := a.change("m1", asked(100, "m1")); c == nil || c.Value == nil { // a greater ballot: m1 would complete the change with it
		t.Errorf("after a restart it promises %+v", c)
	}
}

// TestAcceptsNothingBeforeItsVotesHaveEnded checks that a member accepts no further electorate before its votes under
// earlier ones have ended.
func TestAcceptsNothingBeforeItsVotesHaveEnded(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(1, three), three, false)
	four := voters("m1 m2 m3 m4")
	adopt := func(m *message.Message) {
		m.Number, m.Active, m.Electorate = 2, four.Digest(), &four
	}
	a.hear("m1", adopt)
	if a.number() != 2 {
		t.Fatal("no electorate 2")
	}
	a.record.Number, a.record.Electorate = 2, four
	a.wait(duration)
	expect(t, "before", a.change("m1", asked(1, "m1")), 0)
	expect(t, "before", a.change("m1", proposed(1, "m1", three)), 0)
	a.wait(duration/50 + step)
	expect(t, "after", a.change("m1", asked(1, "m1")), message.Promised)
}

// TestChangeOfAnotherElectorate checks that a message about the next electorate refers to the electorate that it names, not to its
// sender's present one.
func TestChangeOfAnotherElectorate(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(3, three), three, false)
	for what, edit := range map[string]func(*message.Message){
		"lesser number":  func(m *message.Message) { m.Number = 1 },
		"greater number": func(m *message.Message) { m.Number = 5 },
		"cluster":        func(m *message.Message) { m.Cluster++ },
	} {
		c, _ := a.hear("m1", func(m *message.Message) {
			edit(m)
			change := asked(1, "m1")
			m.Change = &change
		})
		expect(t, what, c, 0)
	}
	if a.writes > 0 {
		t.Error("something was promised")
	}

	late := a.message("m1") // of number 3, overtaken by the next
	change := asked(1, "m1")
	late.Change = &change
	four := voters("m1 m2 m3 m4")
	a.hear("m1", func(m *message.Message) { m.Number, m.Active, m.Electorate = 4, four.Digest(), &four })
	a.record.Number, a.record.Electorate = 4, four
	a.wait(2 * duration)
	a.hear("m1", func(*message.Message) {})
	a.Receive(a.now, late)
	if s := a.disk; s.Promised.Counter != 0 || s.Committed.Number != 4 {
		t.Errorf("%+v: a request about electorate 3 was answered for 4", s)
	}
}

// TestAdoptDropsUnsentAnswers checks that an unsent answer is dropped when the next electorate is adopted.
func TestAdoptDropsUnsentAnswers(t *testing.T) {
	three, four := voters("m1 m2 m3"), voters("m1 m2 m3 m4")
	a := newAlone(t, atRecord(1, three), three, false)
	a.hear("m1", func(*message.Message) {})
	a.hear("m3", func(*message.Message) {})
	question, news := a.message("m1"), a.message("m3")
	change := asked(1, "m1")
	question.Change = &change
	question.Items = []message.Item{{Kind: message.Propose, Lease: 1, Counter: 1, Round: 1}}
	news.Number, news.Active, news.Electorate = 2, four.Digest(), &four
	a.sent = nil
	a.Receive(a.now, question)
	a.Receive(a.now, news)
	a.take()
	c, items := a.said("m1")
	expect(t, "promise of record 1", c, 0)
	for _, it := range items {
		if it.Kind == message.Accept {
			t.Error("a vote under electorate 1 was sent under electorate 2")
		}
	}
}

// TestVotesUnderTheSameElectorateOnly checks that members vote only for candidates with the same committed electorate.
func TestVotesUnderTheSameElectorateOnly(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(3, three), three, false)
	for what, test := range map[string]struct {
		edit func(*message.Message)
		want message.Kind
	}{
		"the same":       {func(*message.Message) {}, message.Promise},
		"lesser number":  {func(m *message.Message) { m.Number = 1 }, message.Refuse}, // the electorate may be the same in numbers 1 and 3
		"greater number": {func(m *message.Message) { m.Number = 5 }, message.Refuse},
		"cluster":        {func(m *message.Message) { m.Cluster++ }, message.Refuse},
		"electorate":     {func(m *message.Message) { m.Active++ }, message.Refuse},
	} {
		a.hear("m1", func(*message.Message) {})
		_, items := a.hear("m1", func(m *message.Message) {
			test.edit(m)
			m.Items = []message.Item{{Kind: message.Prepare, Lease: 1, Counter: 1}}
		})
		if len(items) == 0 || items[0].Kind != test.want {
			t.Errorf("%s: %+v, want kind %d", what, items, test.want)
		}
	}
}

func TestLearnsNoOtherThan(t *testing.T) {
	three, two := voters("m1 m2 m3"), voters("m1 m2")
	for what, edit := range map[string]func(*message.Message){
		"lesser number": func(m *message.Message) { m.Number = 1 },
		"same number":   func(m *message.Message) {},
		"cluster":       func(m *message.Message) { m.Number, m.Cluster = 9, m.Cluster+1 },
		"absurd number": func(m *message.Message) { m.Number = 1 << 50 },
		"no lease": func(m *message.Message) {
			m.Number, m.Electorate = 4, &electorate.Electorate{Members: two.Members}
			m.Active = m.Electorate.Digest()
		},
	} {
		a := newAlone(t, atRecord(3, three), three, false)
		a.hear("m1", func(m *message.Message) {
			m.Active, m.Electorate = two.Digest(), &two
			edit(m)
		})
		if s := a.disk; s.Committed.Number != 3 || len(s.Committed.Members) != 3 {
			t.Errorf("%s: electorate %+v", what, s.Committed)
		}
	}
}

// TestWithoutElectorate checks that a member without a committed electorate adopts no electorate that gives it an unconfigured vote,
// and begins none with members that have one. A member that lost its disk abstains until its earlier votes have ended,
// which may take longer than its configured lease.
func TestWithoutElectorate(t *testing.T) {
	three := voters("m1 m2 m3")
	other := voters("m1 m3")
	a := newAlone(t, lease.State{}, other, false)
	a.record = electorate.First(three, 1)
	a.hear("m1", func(m *message.Message) { m.Electorate = &three })
	if a.number() != 0 {
		t.Error("it adopted an unconfigured vote")
	}

	a = newAlone(t, lease.State{}, three, false)
	a.record = electorate.First(three, 1)
	a.hear("m1", func(m *message.Message) { m.Number, m.Active = 5, 1 })
	a.wait(duration)
	if a.number() != 0 {
		t.Error("it has begun a cluster with a member of another one")
	}

	long := three
	long.Duration = 5 * duration
	a = newAlone(t, lease.State{}, three, false)
	a.record = electorate.First(long, 1)
	a.hear("m1", func(m *message.Message) { m.Electorate = &long })
	if _, items := a.hear("m1", func(m *message.Message) {
		m.Items = []message.Item{{Kind: message.Prepare, Lease: 1, Counter: 1}}
	}); a.number() != 1 || len(items) == 0 || items[0].Kind != message.Refuse {
		t.Errorf("electorate %d, answers %+v: want a refusal", a.number(), items)
	}
}

// proposer returns m2 of five members, which desires to remove m5, as do the members in sharing, and the request that
// it sends.
func proposer(t *testing.T, s lease.State, sharing string) (*alone, *message.Change) {
	t.Helper()
	a := newAlone(t, s, s.Committed.Electorate, false)
	desired := voters("m1 m2 m3 m4")
	must.Do(t, a.Reconfigure(a.now, desired))
	for _, name := range strings.Fields(sharing) {
		a.hear(name, func(m *message.Message) { m.Desired = desired.Digest() })
	}
	a.sent = nil
	a.wait(duration / 5)
	c, _ := a.said("m1")
	return a, c
}

func (a *alone) answer(from string, c message.Change) *message.Change {
	desired := voters("m1 m2 m3 m4")
	a.hear(from, func(m *message.Message) { m.Desired, m.Change = desired.Digest(), &c })
	said, _ := a.said("m1")
	return said
}

// TestProposerOfChanges checks that the proposer counts answers to its current request, once per member.
func TestProposerOfChanges(t *testing.T) {
	a, c := proposer(t, atRecord(1, voters("m1 m2 m3 m4 m5")), "m1 m3 m4")
	expect(t, "asks", c, message.Asked)
	b := c.Ballot
	promise := message.Change{Phase: message.Promised, Ballot: b}
	accept := message.Change{Phase: message.Accepted, Ballot: b}
	expect(t, "one", a.answer("m1", promise), 0)
	expect(t, "the same", a.answer("m1", promise), 0)
	expect(t, "to another question", a.answer("m3", message.Change{Phase: message.Promised, Ballot: ballot(b.Counter+7, "m2")}), 0)
	expect(t, "of another phase", a.answer("m3", accept), 0)
	expect(t, "two", a.answer("m3", promise), message.Proposed)
	a.answer("m4", promise)
	a.answer("m5", promise)
	a.answer("m1", accept)
	a.answer("m1", accept)
	if a.number() != 1 {
		t.Fatal("adopted too early")
	}
	a.answer("m3", accept)
	if a.number() != 2 {
		t.Fatal("not adopted")
	}
}

// TestProposesWhatMayHaveBeenChosen checks that the value accepted with the greatest ballot is proposed, in any order
// of the answers.
func TestProposesWhatMayHaveBeenChosen(t *testing.T) {
	for _, names := range [][]string{{"m1", "m3"}, {"m3", "m1"}} {
		a, c := proposer(t, atRecord(1, voters("m1 m2 m3 m4 m5")), "m1 m3 m4")
		expect(t, "asks", c, message.Asked)
		older, newer := voters("m2 m3 m4 m5"), voters("m1 m3 m4 m5")
		said := map[string]message.Change{
			"m1": {Phase: message.Promised, Ballot: c.Ballot, Accepted: ballot(2, "m4"), Value: &older},
			"m3": {Phase: message.Promised, Ballot: c.Ballot, Accepted: ballot(3, "m1"), Value: &newer},
		}
		a.answer(names[0], said[names[0]])
		expect(t, "two of the four that are to be voters have promised", a.answer(names[1], said[names[1]]), 0)
		got := a.answer("m4", message.Change{Phase: message.Promised, Ballot: c.Ballot})
		expect(t, "proposes", got, message.Proposed)
		if got.Value.Digest() != newer.Digest() {
			t.Errorf("%v: proposes %v", names, got.Value)
		}
	}
}

// TestProposesNoInvalidValue checks that an unsolicited value, or an electorate that cannot come next, is not proposed.
func TestProposesNoInvalidValue(t *testing.T) {
	five := voters("m1 m2 m3 m4 m5")
	a, c := proposer(t, atRecord(1, five), "m1 m3 m4")
	far, invalid, other := voters("m1 m2"), voters("m1 m2 m3 m5"), voters("m1 m2 m3 m5")
	invalid.Duration = 0
	for from, value := range map[string]*electorate.Electorate{"m1": &far, "m3": &invalid} {
		expect(t, from, a.answer(from, message.Change{Phase: message.Promised, Ballot: c.Ballot, Accepted: ballot(1, from), Value: value}), 0)
	}
	promise := message.Change{Phase: message.Promised, Ballot: c.Ballot}
	expect(t, "one", a.answer("m1", promise), 0)
	expect(t, "two", a.answer("m3", promise), message.Proposed)
	a.answer("m4", promise)
	for _, from := range []string{"m1", "m3", "m4"} {
		a.answer(from, message.Change{Phase: message.Accepted, Ballot: c.Ballot, Accepted: ballot(1<<40, "m1"), Value: &other})
	}
	if s := a.disk; s.Committed.Number != 2 || s.Committed.Has("m5") {
		t.Errorf("%v is in force", s.Committed)
	}
}

// TestAttemptEndsWithItsElectorate checks that late answers choose nothing once the electorate has been replaced.
func TestAttemptEndsWithItsElectorate(t *testing.T) {
	a, c := proposer(t, atRecord(1, voters("m1 m2 m3 m4 m5")), "m1 m3 m4")
	a.answer("m1", message.Change{Phase: message.Promised, Ballot: c.Ballot})
	expect(t, "proposes", a.answer("m3", message.Change{Phase: message.Promised, Ballot: c.Ballot}), message.Proposed)
	six := voters("m1 m2 m3 m4 m5 m6")
	a.hear("m1", func(m *message.Message) { m.Number, m.Active, m.Electorate = 2, six.Digest(), &six })
	a.record.Number, a.record.Electorate = 2, six
	for _, name := range []string{"m1", "m3", "m4", "m5"} {
		a.answer(name, message.Change{Phase: message.Accepted, Ballot: c.Ballot})
	}
	if a.number() != 2 {
		t.Errorf("electorate %d", a.number())
	}
}

// TestAdoptDropsUnsentProposals checks that an unsent proposal is dropped when the next electorate is adopted.
func TestAdoptDropsUnsentProposals(t *testing.T) {
	a, c := proposer(t, atRecord(1, voters("m1 m2 m3 m4 m5")), "m1 m3 m4")
	for _, name := range []string{"m1", "m4"} {
		m := a.message(name)
		m.Desired, m.Change = voters("m1 m2 m3 m4").Digest(), &message.Change{Phase: message.Promised, Ballot: c.Ballot}
		a.Receive(a.now, m)
	}
	six, news := voters("m1 m2 m3 m4 m5 m6"), a.message("m3")
	news.Number, news.Active, news.Electorate = 2, six.Digest(), &six
	a.sent = nil
	a.Receive(a.now, news)
	a.take()
	if c, _ := a.said("m3"); c != nil {
		t.Errorf("electorate 2: %+v", c)
	}
}

// TestProposesOnlyPossibleChanges checks that a member proposes only if it can succeed, and uses no ballot twice: its own promise
// is on disk first.
func TestProposesOnlyPossibleChanges(t *testing.T) {
	for _, sharing := range []string{"", "m1", "m1 m3"} { // some of the new members
		if _, c := proposer(t, atRecord(1, voters("m1 m2 m3 m4 m5")), sharing); c != nil {
			t.Errorf("shared by %q: asks %+v", sharing, c)
		}
	}
	// all new members, but no majority of the present ones
	a := newAlone(t, atRecord(1, voters("m1 m2 m3 m4 m5")), voters("m1 m2"), false)
	two := voters("m1 m2")
	a.hear("m1", func(m *message.Message) { m.Desired = two.Digest() })
	a.wait(duration / 2)
	if c, _ := a.said("m1"); c != nil {
		t.Errorf("two of five ask %+v", c)
	}
	// one has timed out
	a = newAlone(t, atRecord(1, voters("m1 m2 m3 m4 m5")), voters("m1 m2 m3 m4"), false)
	four := voters("m1 m2 m3 m4")
	a.hear("m4", func(m *message.Message) { m.Desired = four.Digest() })
	a.wait(duration)
	a.hear("m3", func(m *message.Message) { m.Desired = four.Digest() })
	a.hear("m1", func(m *message.Message) { m.Desired = four.Digest() })
	a.wait(duration / 2)
	if c, _ := a.said("m1"); c != nil {
		t.Errorf("m4 has timed out: asks %+v", c)
	}
	// its own votes have not ended
	a = newAlone(t, atRecord(1, voters("m1 m2")), voters("m2"), true)
	single := voters("m2")
	a.hear("m1", func(m *message.Message) { m.Desired = single.Digest() })
	a.wait(duration / 2)
	if c, _ := a.said("m1"); c != nil {
		t.Errorf("started recently: asks %+v", c)
	}
}

// TestBallotsGrow checks that ballots exceed all promises, including those before a restart, and all refusals.
func TestBallotsGrow(t *testing.T) {
	s := atRecord(1, voters("m1 m2 m3 m4 m5"))
	s.Promised = ballot(7, "m4")
	a, c := proposer(t, s, "m1 m3 m4")
	expect(t, "asks", c, message.Asked)
	if c.Ballot.Counter != 8 {
		t.Errorf("ballot %+v, want 8", c.Ballot)
	}
	if s := a.disk; s.Promised != c.Ballot {
		t.Errorf("its own ballot %+v is not on disk: %+v", c.Ballot, s.Promised)
	}
	a.answer("m1", message.Change{Phase: message.Refused, Ballot: ballot(20, "m5")})
	a.sent = nil
	for range 8 {
		for _, name := range []string{"m1", "m3", "m4"} {
			m := a.message(name)
			m.Desired = voters("m1 m2 m3 m4").Digest()
			a.Receive(a.now, m)
		}
		a.wait(duration / 6)
	}
	if c, _ := a.said("m1"); c == nil || c.Ballot.Counter != 21 {
		t.Errorf("asks %+v, want ballot 21", c)
	}
}

// TestLongestIsLowered checks that after the longer leases have ended, a restarted member abstains for the shorter
// time.
func TestLongestIsLowered(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	short := voters("m1 m2 m3")
	short.Duration = duration / 4
	c.reconfigure(short, "m1", "m2", "m3")
	c.awaitActive(6*duration, short, "m1", "m2", "m3")
	if got := c.disks["m2"].Longest; got != duration {
		t.Errorf("longest %v, want %v", got, duration)
	}
	c.run(2 * duration)
	if got := c.disks["m2"].Longest; got != short.Duration {
		t.Errorf("longest %v, want %v", got, short.Duration)
	}
}

// TestHolderKeepsItsOwnVote checks that a holder votes for no other while it holds the lease, even if configured with a
// shorter one.
func TestHolderKeepsItsOwnVote(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(1, three), three, false)
	short := three
	short.Duration = duration / 4
	must.Do(t, a.Reconfigure(a.now, short))
	a.Campaign(a.now, lease.Candidacy{Lease: vip})
	var until time.Time
	for range 400 {
		a.now = a.now.Add(step)
		if until.IsZero() {
			a.Receive(a.now, a.message("m1"))
		}
		a.Tick(a.now)
		out, events := a.Take()
		for _, e := range events {
			if g, ok := e.(lease.Granted); ok {
				until = g.Until
			}
		}
		for _, o := range out {
			for _, it := range o.Items {
				if o.To == "m1" && until.IsZero() && (it.Kind == message.Prepare || it.Kind == message.Propose) {
					m := a.message("m1")
					it.Kind++
					m.Items = []message.Item{it}
					a.Receive(a.now, m)
				}
			}
		}
		if until.IsZero() || a.now.Add(duration*7/10).Before(until) {
			continue
		}
		if _, items := a.hear("m3", func(m *message.Message) {
			m.Items = []message.Item{{Kind: message.Prepare, Lease: lease.ID(vip), Counter: 50}}
		}); len(items) == 0 || !hasKind(items, message.Refuse) || !a.now.Before(until) {
			t.Fatalf("it answers %+v, %v before the end of its lease", items, until.Sub(a.now))
		}
		return
	}
	t.Fatal("no lease")
}

func hasKind(items []message.Item, k message.Kind) bool {
	for _, it := range items {
		if it.Kind == k {
			return true
		}
	}
	return false
}
