package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/electorate"
	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// newMixed returns a cluster of the voters m1, m2 and m3, and of observers that know each other.
func newMixed(t *testing.T, observers ...string) *cluster {
	c := newCluster(t)
	c.observers, c.electorate = 8, voters("m1 m2 m3")
	for _, name := range slices.Concat(c.electorate.Members, observers) {
		c.start(name, c.electorate)
	}
	for _, name := range observers {
		c.nodes[name].AddObservers(c.now, observers...)
	}
	c.run(2 * duration)
	return c
}

// candidates makes members candidates with falling priorities.
func (c *cluster) candidates(names ...string) {
	for i, name := range names {
		c.nodes[name].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: len(names) - i})
	}
}

func TestObserversHoldLeases(t *testing.T) {
	c := newMixed(t, "w1", "w2", "w3")
	c.candidates("w2", "w1", "w3")
	if took := c.await(duration, "w2 holds the lease", func() bool { return c.holder(vip) == "w2" }); took > duration/10 {
		t.Errorf("elected after %v", took)
	}
	c.run(5 * duration)
	for _, name := range []string{"w1", "w2", "w3"} {
		s := c.nodes[name].Lease(c.now, vip)
		if s.Holder != "w2" || s.Epoch == 0 || s.Until.IsZero() || s.Needed != 2 {
			t.Errorf("%s reports %+v", name, s)
		}
	}
	if votes := sorted(c.nodes["w2"].Lease(c.now, vip).Votes); !slices.Equal(votes, c.electorate.Members) {
		t.Errorf("voted for by %v", votes)
	}

	c.drop = func(_, _ string, m message.Message) bool {
		if slices.ContainsFunc(m.Items, func(it message.Item) bool { return it.Kind == message.Release && it.To != "w1" }) {
			t.Errorf("a release names no successor: %+v", m.Items)
		}
		return false
	}
	c.stepDown("w2", vip)
	if took := c.await(duration, "w1 is handed the lease", func() bool { return c.holder(vip) == "w1" }); took > 10*step {
		t.Errorf("handed over in %v", took)
	}
	c.run(2 * duration)
	c.drop = nil
	c.kill("w1")
	took := c.await(2*duration, "w3 takes over", func() bool { return c.holder(vip) == "w3" })
	if took > duration+duration/5 {
		t.Errorf("taken over after %v", took)
	}
	if n := len(c.nodes["w3"].events); n == 0 {
		t.Error("w3 received nothing")
	}
}

// TestObserversDoNotBidForHeldLeases checks that observers wait for held leases and send no requests.
func TestObserversDoNotBidForHeldLeases(t *testing.T) {
	c := newMixed(t, "w1", "w2")
	c.candidates("w1", "w2")
	c.awaitHolder(duration)
	bids := 0
	c.drop = func(src, _ string, m message.Message) bool {
		if src == "w2" && slices.ContainsFunc(m.Items, func(it message.Item) bool { return it.Kind == message.Prepare }) {
			bids++
		}
		return false
	}
	c.run(20 * duration)
	if bids > 0 {
		t.Errorf("w2 asked for the lease %d times while w1 held it", bids)
	}
}

func TestObserversAreNoMajority(t *testing.T) {
	c := newMixed(t, "w1", "w2", "w3")
	c.kill("m1")
	c.kill("m2")
	c.run(2 * duration)
	c.candidates("w1", "w2", "w3")
	c.run(5 * duration)
	if h := c.holder(vip); h != "" {
		t.Errorf("%s holds the lease with the vote of m3 alone", h)
	}
	if why := c.nodes["w1"].Lease(c.now, vip).Why; why != "no quorum: 1 of 3 members reachable, 2 needed" {
		t.Errorf("the reason is %q", why)
	}
	c.start("m1", c.electorate)
	c.awaitHolder(3 * duration)
}

func TestObserversFollowTheVoters(t *testing.T) {
	c := newMixed(t, "w1", "w2")
	c.candidates("w1", "w2")
	c.awaitHolder(duration)
	lost := func() bool {
		return slices.ContainsFunc(c.nodes["w1"].events, func(e lease.Event) bool { _, ok := e.(lease.Lost); return ok })
	}
	step := func(names string, d time.Duration) electorate.Electorate {
		e := voters(names)
		e.Duration = d
		for _, name := range e.Members {
			if c.nodes[name] == nil {
				c.start(name, e)
			}
		}
		c.reconfigure(e, e.Members...)
		c.awaitActive(6*duration, e, slices.Concat(e.Members, []string{"w1", "w2"})...)
		return e
	}
	step("m1 m2 m3 m4", duration)
	step("m2 m3 m4", duration)
	c.kill("m1")
	step("m2 m3 m4", duration/2)
	last := step("m2 m3 m4 m5", 2*duration)
	c.run(5 * duration)
	if c.holder(vip) != "w1" || lost() {
		t.Errorf("%q holds the lease: %+v", c.holder(vip), c.nodes["w1"].events)
	}
	s := c.nodes["w2"].Status(c.now)
	if s.Problem != "" || !strings.Contains(s.Lag, "in force is [m2 m3 m4 m5; 1.2s, majority], this member is configured with [m1 m2 m3; 600ms, majority]") {
		t.Errorf("problem %q, lag %q", s.Problem, s.Lag)
	}
	c.reconfigure(last, "w2")
	if s := c.nodes["w2"].Status(c.now); s.Lag != "" {
		t.Errorf("with the same configuration, it reports %q", s.Lag)
	}
	c.start("w2", c.electorate) // with the old configuration; two of its members are left
	c.awaitActive(2*duration, last, "w2")
}

func TestObserverBecomesVoterAndCeases(t *testing.T) {
	c := newMixed(t, "w1", "w2")
	c.candidates("w1", "w2")
	c.awaitHolder(duration)
	four := voters("m1 m2 m3 w1")
	c.reconfigure(four, "w1")
	c.run(duration)
	if s := c.nodes["w1"].Status(c.now); s.Desired == nil || s.Problem == "" {
		t.Errorf("it waits for the others and reports %+v", s)
	}
	c.reconfigure(c.electorate, "w1") // withdrawn
	c.run(duration)
	if s := c.nodes["w1"].Status(c.now); s.Desired != nil || s.Problem != "" {
		t.Errorf("after withdrawal, it reports %+v", s)
	}
	c.reconfigure(four, four.Members...)
	c.awaitActive(6*duration, four, "m1", "m2", "m3", "w1", "w2")
	c.run(duration)
	if votes := c.nodes["w1"].Lease(c.now, vip).Votes; !slices.Contains(votes, "w1") {
		t.Errorf("w1 is voted for by %v", votes)
	}
	c.reconfigure(c.electorate, four.Members...)
	c.awaitActive(6*duration, c.electorate, "m1", "m2", "m3", "w1", "w2")
	c.run(duration)
	if votes := c.nodes["w1"].Lease(c.now, vip).Votes; slices.Contains(votes, "w1") || c.holder(vip) != "w1" {
		t.Errorf("%s holds the lease, by the votes of %v", c.holder(vip), votes)
	}
	members := c.nodes["m1"].Members(c.now)
	if i := slices.IndexFunc(members, func(m lease.Member) bool { return m.Name == "w1" }); i < 0 || members[i].Voter {
		t.Errorf("m1 knows %+v", members)
	}
}

// TestObserverMissesShorterLeases: the voters change to shorter leases, and the holder w1 does not
// learn of it. They stop voting for it in time, so that m1 and m2, restarted with the shorter Duration, do not grant the
// lease to another member too early.
func TestObserverMissesShorterLeases(t *testing.T) {
	c := newMixed(t, "w1")
	c.candidates("w1")
	c.awaitHolder(duration)
	c.drop = func(_, dst string, m message.Message) bool { return dst == "w1" && m.Electorate != nil }
	shorter := c.electorate
	shorter.Duration = duration / 4
	c.reconfigure(shorter, shorter.Members...)
	c.awaitActive(3*duration, shorter, "m3")
	c.start("m1", shorter)
	c.start("m2", shorter)
	for _, name := range shorter.Members {
		c.nodes[name].Campaign(c.now, lease.Candidacy{Lease: vip})
	}
	c.await(2*duration, "a voter holds the lease", func() bool { h := c.holder(vip); return h != "" && h != "w1" })
}

func TestObserversAreBoundedAndForgotten(t *testing.T) {
	c := newMixed(t)
	m := c.nodes["m1"]
	hello := func(src string, sequence uint64) {
		m.Receive(c.now, message.Message{From: src, Incarnation: 7, Receiver: message.Identity("m1", m.Status(c.now).Incarnation), Sequence: sequence})
	}
	known := func() (names []string) {
		for _, s := range m.Members(c.now) {
			if !s.Voter {
				names = append(names, s.Name)
			}
		}
		return names
	}
	sequence := func(dst string) (last uint64) {
		out, _ := m.Take()
		for _, o := range out {
			if o.To == dst {
				last = o.Sequence
			}
		}
		return last
	}
	for i := range 20 {
		hello(fmt.Sprint("w", i), 1)
	}
	m.Tick(c.now.Add(duration / 2))
	last := sequence("w0")
	if got := known(); len(got) != 8 || last == 0 {
		t.Fatalf("%v are known of 20 observers, want 8", got)
	}
	c.run(40 * duration)
	hello("late", 1)
	if got := known(); len(got) != 8 || !slices.Contains(got, "late") {
		t.Errorf("a timed-out observer made no room: %v", got)
	}
	c.run(11 * time.Minute)
	if got := known(); len(got) != 0 {
		t.Errorf("never forgotten: %v", got)
	}
	hello("w0", 2)
	if again := sequence("w0"); again <= last {
		t.Errorf("it is sent message %d after %d", again, last)
	}
	m.AddObservers(c.now, "m1", "m2", "w5", "", strings.Repeat("x", 254))
	if got := known(); !slices.Equal(got, []string{"w0", "w5"}) {
		t.Errorf("added observers: %v", got)
	}
}

// TestIdleObserversAreQuiet checks that peers that need little of each other send seldom.
func TestIdleObserversAreQuiet(t *testing.T) {
	c := newMixed(t, "w1", "w2", "w3")
	sent := map[string]int{}
	c.drop = func(src, dst string, _ message.Message) bool { sent[src+" "+dst]++; return false }
	c.nodes["w3"].Campaign(c.now, lease.Candidacy{Lease: "other"})
	c.nodes["w2"].Campaign(c.now, lease.Candidacy{Lease: vip})
	c.run(20 * duration)
	for pair, most := range map[string]int{"w1 m1": 12, "m1 w1": 12, "w1 w2": 12, "w2 w3": 15} {
		if n := sent[pair]; n == 0 || n > most {
			t.Errorf("%s: %d messages in 20 leases, want at most %d", pair, n, most)
		}
	}
	if n := sent["w3 m1"]; n < 60 {
		t.Errorf("a candidate sent %d messages", n)
	}
}

// TestRemovedVoterIgnoresUncommittedLists: the removed m3 runs on with its old list, which contains m2, removed later.
// m2 does not take that list for the electorate in force.
func TestRemovedVoterIgnoresUncommittedLists(t *testing.T) {
	c := newMixed(t)
	pair, single := voters("m1 m2"), voters("m1")
	c.reconfigure(pair, "m1", "m2")
	c.awaitActive(6*duration, pair, "m1", "m2")
	c.reconfigure(single, "m1", "m2")
	c.awaitActive(6*duration, single, "m1", "m2")
	c.campaign(vip)
	c.isolate("m1", true)
	c.run(10 * duration)
	if h := c.holder(vip); h != "m1" {
		t.Errorf("%q holds the lease, want m1", h)
	}
	if s := c.nodes["m2"].Status(c.now); s.Active == nil || s.Active.Digest() != single.Digest() {
		t.Errorf("m2 uses %v", s.Active)
	}
}

// TestVotesOfAndForVotersOnly checks that a member without a vote grants nothing, and that without a quorum voters vote
// for voters only.
func TestVotesOfAndForVotersOnly(t *testing.T) {
	others, alone := voters("m1 m3"), voters("m1 m2 m3")
	alone.Quorum = electorate.None
	for src, e := range map[string]electorate.Electorate{"m1": others, "w1": alone} {
		a := newAlone(t, atRecord(3, e), e, false)
		a.AddObservers(a.now, src)
		a.hear(src, func(*message.Message) {})
		_, items := a.hear(src, func(m *message.Message) {
			m.Items = []message.Item{{Kind: message.Prepare, Lease: 1, Counter: 1}}
		})
		if len(items) == 0 || items[0].Kind != message.Refuse {
			t.Errorf("%s is answered %+v, want a refusal", src, items)
		}
	}
}

// TestStaleWorker moves the voters from m1, m2, m3 to m7, m8, m9, which then lose all their disks. The site begins anew
// with its first list. A worker that was switched off meanwhile brings the old electorate: no member follows it.
func TestStaleWorker(t *testing.T) {
	c := newMixed(t, "w1")
	first, last := c.electorate, voters("m7 m8 m9")
	for _, name := range last.Members {
		c.start(name, last)
	}
	c.reconfigure(last, c.names...)
	c.awaitActive(30*time.Second, last, c.names...)
	for _, name := range slices.Clone(c.names) {
		if c.kill(name); name != "w1" {
			delete(c.disks, name)
		}
	}
	for _, name := range first.Members {
		c.start(name, first)
	}
	c.campaign(vip)
	c.awaitHolder(5 * time.Second)
	c.run(5 * time.Second)
	c.start("w1", first)
	c.run(10 * time.Second)
	c.awaitActive(0, first, "m1", "m2", "m3", "w1")
	c.awaitHolder(0)
}
