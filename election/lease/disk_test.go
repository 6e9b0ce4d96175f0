package lease_test

import (
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// votes reports whether m2 votes for a lease of m1.
func (a *alone) votes(counter uint64) bool {
	_, items := a.hear("m1", func(m *message.Message) {
		m.Items = []message.Item{{Kind: message.Prepare, Lease: 1, Counter: counter}}
	})
	return hasKind(items, message.Promise)
}

// learn tells m2 of the next electorate.
func (a *alone) learn(e electorate.Electorate) {
	a.record.Number++
	a.record.Electorate = e
	a.hear("m1", func(m *message.Message) { m.Electorate = &e })
	a.hear("m1", func(*message.Message) {})
}

// TestAnswersOnceOnDisk checks that a member promises and accepts once that is on disk, gives an answer again without
// another write, ignores requests during a write, and votes for leases meanwhile.
func TestAnswersOnceOnDisk(t *testing.T) {
	three, two := voters("m1 m2 m3"), voters("m1 m2")
	a := newAlone(t, atRecord(1, three), three, false)
	a.slow = true
	for i, test := range []struct {
		what          string
		request, late message.Change
		want          message.Phase
	}{
		{"asked", asked(5, "m1"), asked(7, "m3"), message.Promised},
		{"proposed", proposed(5, "m1", two), proposed(7, "m3", voters("m2 m3")), message.Accepted},
	} {
		before := a.disk
		expect(t, test.what, a.change("m1", test.request), 0)
		if !a.write() {
			t.Fatalf("%s: nothing to store", test.what)
		}
		expect(t, test.what+" again, during the write", a.change("m1", test.request), 0)
		expect(t, "another, during the write", a.change("m3", test.late), 0)
		if !a.votes(uint64(i) + 1) {
			t.Errorf("%s: it does not vote during the write", test.what)
		}
		if a.write() {
			t.Errorf("%s: another write", test.what)
		}
		for what, s := range map[string]lease.State{"before": before, "after": a.disk} { // a crash
			b := newAlone(t, s, three, false)
			expect(t, "after a crash "+what+" the write", b.change("m1", test.request), test.want)
		}
		a.stored()
		c, _ := a.said("m1")
		expect(t, test.what+", on disk", c, test.want)
		expect(t, test.what+" again", a.change("m1", test.request), test.want)
		if a.write() {
			t.Errorf("%s: the same answer is written twice", test.what)
		}
	}
}

// TestNextElectorateIsInForceAtOnce checks that a member adopts the next electorate of its cluster during a write, which
// is void then.
func TestNextElectorateIsInForceAtOnce(t *testing.T) {
	three, four := voters("m1 m2 m3"), voters("m1 m2 m3 m4")
	a := newAlone(t, atRecord(1, three), three, false)
	a.slow = true
	a.change("m1", asked(5, "m1"))
	a.write()
	a.learn(four)
	if a.number() != 2 || !a.votes(1) {
		t.Fatalf("electorate %d, want 2 and a vote", a.number())
	}
	a.stored()
	c, _ := a.said("m1")
	expect(t, "the promise of before", c, 0)
	if !a.write() || a.disk.Committed.Number != 2 || a.disk.Promised.Counter != 0 {
		t.Errorf("on disk is %+v", a.disk)
	}
	a.stored()
	a.wait(2 * duration)
	expect(t, "asked", a.change("m1", asked(1, "m1")), 0)
	a.write()
	a.stored()
	c, _ = a.said("m1")
	expect(t, "asked", c, message.Promised)
}

// TestVotesForLongerLeasesOnceOnDisk checks that a member votes for longer leases once its disk tells of them: with the
// electorate, or with its acceptance before.
func TestVotesForLongerLeasesOnceOnDisk(t *testing.T) {
	three := voters("m1 m2 m3")
	long, short := three, three
	long.Duration, short.Duration = 2*duration, duration/2
	for _, accepts := range []bool{false, true} {
		a := newAlone(t, atRecord(1, three), three, false)
		if accepts {
			a.change("m1", proposed(1, "m1", long))
		}
		a.slow = true
		a.learn(long)
		if a.number() != 2 || a.votes(1) != accepts {
			t.Errorf("electorate %d; it votes: %t, want %t", a.number(), !accepts, accepts)
		}
		a.write()
		a.stored()
		if a.disk.Longest != long.Duration || !a.votes(2) {
			t.Errorf("it does not vote, on disk is %v", a.disk.Longest)
		}
	}

	// The disk forgets the longer ones before the member does.
	a := newAlone(t, lease.State{Committed: atRecord(1, short).Committed, Longest: duration}, short, true)
	a.wait(duration)
	a.slow = true
	a.wait(duration / 10)
	if !a.write() || a.disk.Longest != short.Duration {
		t.Fatalf("on disk is %v", a.disk.Longest)
	}
	a.learn(three)
	if a.votes(1) {
		t.Error("it votes for a lease longer than its disk may tell of")
	}
}

// TestFirstElectorateIsOnDiskFirst checks that a member without an electorate has none before that is on disk.
func TestFirstElectorateIsOnDiskFirst(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, lease.State{}, three, false)
	a.slow = true
	a.record = atRecord(3, three).Committed
	a.learn(three)
	if a.number() != 0 || a.votes(1) {
		t.Error("it acts on an electorate that is on no disk")
	}
	a.write()
	a.stored()
	a.wait(2 * duration)
	if a.number() != 4 || !a.votes(2) {
		t.Errorf("electorate %d", a.number())
	}
}

// TestStoredTwice checks that the report of an earlier write has no effect.
func TestStoredTwice(t *testing.T) {
	three := voters("m1 m2 m3")
	a := newAlone(t, atRecord(1, three), three, false)
	a.slow = true
	a.change("m1", asked(5, "m1"))
	a.stored() // of an earlier write
	c, _ := a.said("m1")
	expect(t, "not handed out yet", c, 0)
}

// TestBidEndsWithItsElectorate checks that votes for shorter leases win no longer one.
func TestBidEndsWithItsElectorate(t *testing.T) {
	three := voters("m1 m2 m3")
	long := three
	long.Duration = 4 * duration
	a := newAlone(t, atRecord(1, three), three, false)
	a.Campaign(a.now, lease.Candidacy{Lease: vip})
	var proposal message.Item
	for range 400 {
		a.now = a.now.Add(step)
		a.sent = nil
		for _, name := range []string{"m1", "m3"} {
			a.Receive(a.now, a.message(name))
		}
		a.Tick(a.now)
		a.take()
		_, items := a.said("m1")
		for _, it := range items {
			switch it.Kind {
			case message.Prepare:
				it.Kind = message.Promise
				a.hear("m1", func(m *message.Message) { m.Items = []message.Item{it} })
				if _, items := a.said("m3"); hasKind(items, message.Propose) {
					proposal = items[len(items)-1]
				}
			}
		}
		if proposal.Kind != 0 {
			break
		}
	}
	if proposal.Kind != message.Propose {
		t.Fatalf("no proposal: %+v", proposal)
	}
	a.learn(long)
	proposal.Kind = message.Accept
	for _, name := range []string{"m1", "m3"} {
		m := a.message(name)
		m.Items = []message.Item{proposal}
		a.Receive(a.now, m)
	}
	_, events := a.Take()
	for _, e := range events {
		if g, ok := e.(lease.Granted); ok {
			t.Errorf("granted for %v by votes for leases of %v", g.Until.Sub(a.now).Round(time.Millisecond), duration)
		}
	}
}

// TestLeavesClusterOnceOnDisk checks that a sole voter joins another cluster once that is on disk, and wins no lease
// meanwhile.
func TestLeavesClusterOnceOnDisk(t *testing.T) {
	theirs := clusterOf(4, 3, "m1 m3")
	a := newAloneIn(t, lease.State{Committed: clusterOf(5, 1, "m2"), Longest: duration}, voters("m2"), &lease.Open{Bootstrap: true, Forget: forget})
	a.Campaign(a.now, lease.Candidacy{Lease: vip})
	a.wait(3 * duration)
	if a.Status(a.now).Leases[0].Holder != "m2" {
		t.Fatal("it holds no lease")
	}
	a.slow = true
	for range 3 {
		a.hear("m1", func(m *message.Message) {
			m.Cluster, m.Number, m.Active, m.Heard, m.Electorate = theirs.Cluster, theirs.Number, theirs.Digest(), true, &theirs.Electorate
		})
		a.wait(duration / 3)
	}
	if s := a.Status(a.now); s.Number != 1 || s.Leases[0].Holder != "" {
		t.Errorf("electorate %d, holder %q, want 1 and none", s.Number, s.Leases[0].Holder)
	}
	a.write()
	a.stored()
	if a.number() != 3 {
		t.Errorf("electorate %d, want 3", a.number())
	}
}

// TestAttemptWaitsForMembers checks that an attempt goes on once the member that it adds is up, though no answer comes.
func TestAttemptWaitsForMembers(t *testing.T) {
	s, two := atRecord(1, voters("m2")), voters("m2 m3")
	s.Promised, s.Accepted, s.Value = ballot(1, "m2"), ballot(1, "m2"), &two
	a := newAlone(t, s, voters("m2"), false)
	if a.number() != 1 || a.disk.Promised.Counter < 2 {
		t.Fatalf("electorate %d, on disk is %+v", a.number(), a.disk)
	}
	a.hear("m3", func(*message.Message) {})
	a.wait(duration / 2)
	if a.number() != 2 {
		t.Errorf("electorate %d, want 2", a.number())
	}
}

// TestGivesWayToGreaterBallots checks that a proposer leaves the attempt to another one with a greater ballot, as long
// as that repeats its requests, and takes a late refusal for none.
func TestGivesWayToGreaterBallots(t *testing.T) {
	s := atRecord(1, voters("m1 m2 m3 m4 m5"))
	s.Promised = ballot(7, "m4")
	a, c := proposer(t, s, "m1 m3 m4")
	expect(t, "asks", c, message.Asked)
	a.answer("m4", message.Change{Phase: message.Refused, Ballot: ballot(7, "m4")})
	promise := message.Change{Phase: message.Promised, Ballot: c.Ballot}
	a.answer("m1", promise)
	expect(t, "promised by three", a.answer("m3", promise), message.Proposed)

	greater := asked(c.Ballot.Counter+1, "m3")
	asks := func(d time.Duration, request *message.Change) (c *message.Change) {
		for range d / (duration / 6) {
			for _, name := range []string{"m1", "m3", "m4"} {
				m := a.message(name)
				if m.Desired = voters("m1 m2 m3 m4").Digest(); name == "m3" {
					m.Change = request
				}
				a.Receive(a.now, m)
			}
			a.sent = nil
			a.wait(duration / 6)
			if said, _ := a.said("m1"); said != nil {
				c = said
			}
		}
		return c
	}
	expect(t, "during another's attempt", asks(4*duration, &greater), 0)
	c = asks(3*duration/2, nil)
	expect(t, "after it", c, message.Asked)
	if c.Ballot.Counter != greater.Ballot.Counter+1 {
		t.Errorf("asks %+v", c)
	}
}
