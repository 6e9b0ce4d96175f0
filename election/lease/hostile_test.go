package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/election/lease"
	"github.com/herald-vip/herald/election/lease/message"
)

// forge returns a possible message between two members.
func (c *cluster) forge(src, dst string, sequence uint64, items ...message.Item) message.Message {
	f, t := c.nodes[src].Status(c.now), c.nodes[dst].Status(c.now)
	return message.Message{
		From: src, Incarnation: f.Incarnation, Receiver: message.Identity(dst, t.Incarnation), Sequence: sequence,
		Cluster: c.disks[src].Committed.Cluster, Number: f.Number, Active: f.Active.Digest(), Desired: f.Active.Digest(), Items: items,
	}
}

// answers returns the items that a member sends to another.
func answers(n *node, dst string) []message.Item {
	var items []message.Item
	out, _ := n.Take()
	for _, o := range out {
		if o.To == dst {
			items = append(items, o.Items...)
		}
	}
	return items
}

func TestAbsurdCountersAreIgnored(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	for i, kind := range []message.Kind{message.Prepare, message.Propose} {
		ignored := m.Status(c.now).Ignored
		m.Receive(c.now, c.forge("m2", "m1", uint64(1000+i), message.Item{Kind: kind, Lease: lease.ID(vip), Counter: 1<<64 - 1}))
		if got := answers(m, "m2"); len(got) != 0 {
			t.Errorf("kind %d: answered %+v", kind, got)
		}
		if m.Status(c.now).Ignored != ignored+1 {
			t.Errorf("kind %d: not counted", kind)
		}
	}
	c.campaign(vip)
	c.awaitHolder(duration)
}

func TestForeignLeasesAreBounded(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	granted := 0
	for i := range 9000 {
		m.Receive(c.now, c.forge("m2", "m1", uint64(1000+i),
			message.Item{Kind: message.Propose, Lease: uint64(i), Counter: 1},
			message.Item{Kind: message.Campaign, Lease: uint64(i), Campaigning: true}))
		granted += len(answers(m, "m2"))
	}
	if granted != 8192 {
		t.Errorf("%d leases are voted on, want 8192", granted)
	}
	c.campaign(vip) // a member's own leases are always possible
	c.awaitHolder(duration)
	c.run(4 * duration) // idle leases are forgotten
	m.Receive(c.now, c.forge("m2", "m1", 19000, message.Item{Kind: message.Propose, Lease: 77, Counter: 1}))
	if got := answers(m, "m2"); len(got) != 1 || got[0].Kind != message.Accept {
		t.Errorf("after the idle leases were forgotten: %+v", got)
	}
}

func TestUnknownMembersAreIgnored(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	valid := c.forge("m2", "m1", 1000, message.Item{Kind: message.Propose, Lease: 1, Counter: 1})
	for name, change := range map[string]func(*message.Message){
		"unknown member":          func(m *message.Message) { m.From = "m9" },
		"oneself":                 func(m *message.Message) { m.From = "m1" },
		"no incarnation":          func(m *message.Message) { m.Incarnation = 0 },
		"an earlier process":      func(m *message.Message) { m.Incarnation-- },
		"meant for another":       func(m *message.Message) { m.Receiver = message.Identity("m3", 1003) },
		"meant for an earlier us": func(m *message.Message) { m.Receiver = message.Identity("m1", 900) },
		"before the handshake":    func(m *message.Message) { m.Receiver = 0 },
		"meant for any of us":     func(m *message.Message) { m.Receiver = message.Identity("m1", 0) },
		"an old sequence number":  func(m *message.Message) { m.Sequence = 1 },
		"no sequence number":      func(m *message.Message) { m.Sequence = 0 },
	} {
		msg, ignored := valid, m.Status(c.now).Ignored
		change(&msg)
		m.Receive(c.now, msg)
		for _, it := range answers(m, "m2") {
			if it.Kind == message.Accept {
				t.Errorf("%s: granted", name)
			}
		}
		if got := m.Status(c.now).Ignored; got != ignored+1 {
			t.Errorf("%s: ignored %d, want %d", name, got, ignored+1)
		}
		valid.Sequence++
	}
	m.Receive(c.now, valid)
	if got := answers(m, "m2"); len(got) != 1 || got[0].Kind != message.Accept {
		t.Errorf("the valid one: %+v", got)
	}
}

// TestAnswersToEarlierRounds checks that an answer to an earlier round does not extend the lease.
func TestAnswersToEarlierRounds(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	holder := c.awaitHolder(2 * duration)
	c.run(duration)
	n, voter := c.nodes[holder], c.others(holder)[0]
	s := n.Status(c.now).Leases[0]
	c.isolate(holder, true)
	c.run(duration / 3) // another round, unanswered
	until := n.until[vip]
	for round := range uint64(100) {
		for _, counter := range []uint64{s.Epoch, s.Epoch + 1} {
			n.Receive(c.now, c.forge(voter, holder, 100000+round*2+counter, message.Item{Kind: message.Accept, Lease: lease.ID(vip), Counter: counter, Round: round}))
		}
		if _, events := n.Take(); len(events) > 0 {
			g, ok := events[0].(lease.Granted)
			if !ok || len(events) > 1 {
				t.Fatalf("events %+v", events)
			}
			if round == 0 || !g.Until.After(until) {
				t.Fatalf("round %d: %+v", round, g)
			}
			return // the present round: this vote is valid
		}
	}
	t.Fatal("no round was granted")
}

// bidder is a candidate with one pending request.
type bidder struct {
	*cluster
	*node
	sequence uint64
}

// bids makes m1 a candidate and returns its request to m2.
func bids(t *testing.T, c *cluster) (*bidder, message.Item) {
	c.run(2 * duration)
	b := &bidder{c, c.nodes["m1"], 1000}
	b.Campaign(c.now, lease.Candidacy{Lease: vip})
	for range duration / step {
		if it := b.asks(message.Prepare); it.Counter > 0 {
			return b, it
		}
		b.wait(step)
	}
	t.Fatal("m1 asks for no promise")
	return nil, message.Item{}
}

// asks returns the candidate's request to m2 if it has that kind.
func (b *bidder) asks(kind message.Kind) message.Item {
	for _, it := range answers(b.node, "m2") {
		if it.Kind == kind {
			return it
		}
	}
	return message.Item{}
}

func (b *bidder) wait(d time.Duration) {
	b.now = b.now.Add(d)
	b.Tick(b.now)
}

func (b *bidder) hears(src string, it message.Item) {
	b.sequence++
	b.Receive(b.now, b.forge(src, "m1", b.sequence, it))
}

// TestAnswersThatDoNotCount gives a candidate answers for another ballot or request, repeated ones and late ones: none
// of them has an effect.
func TestAnswersThatDoNotCount(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "too late": true} {
		t.Run(name, func(t *testing.T) {
			b, it := bids(t, newCluster(t, "m1", "m2", "m3", "m4", "m5"))
			promise := message.Item{Kind: message.Promise, Lease: it.Lease, Counter: it.Counter}
			another, later, accept := promise, promise, promise
			another.Counter, later.Round, accept.Kind = it.Counter+1, 1, message.Accept
			b.hears("m2", promise)
			b.hears("m2", promise)
			for _, wrong := range []message.Item{another, later, accept} {
				if b.hears("m3", wrong); b.asks(message.Propose).Counter != 0 {
					t.Fatalf("%+v counts as a promise", wrong)
				}
			}
			b.hears("m3", promise)
			if it = b.asks(message.Propose); it.Round == 0 {
				t.Fatal("two promises and its own do not count")
			}

			accept.Round, promise.Round = it.Round, it.Round
			another, later = accept, accept
			another.Counter, later.Round = it.Counter+1, it.Round+1
			b.hears("m2", accept)
			b.hears("m2", accept)
			for _, wrong := range []message.Item{another, later, promise} {
				b.hears("m3", wrong)
				if _, events := b.Take(); len(events) > 0 {
					t.Fatalf("%+v counts as a vote: %+v", wrong, events)
				}
			}
			if late {
				b.now = b.now.Add(duration * 7 / 10) // when a holder gives up
			}
			b.hears("m3", accept)
			if _, events := b.Take(); len(events) > 0 == late {
				t.Errorf("at the third vote: %+v", events)
			}
			if votes := b.Lease(b.now, vip).Votes; !late && !slices.Equal(sorted(votes), []string{"m1", "m2", "m3"}) {
				t.Errorf("voted for by %v", votes)
			}
		})
	}
}

// TestRefusalWithoutAVote checks that a refusal by a non-voter does not make a candidate ask again.
func TestRefusalWithoutAVote(t *testing.T) {
	b, it := bids(t, newMixed(t, "w1"))
	b.hears("w1", message.Item{Kind: message.Refuse, Lease: it.Lease, Counter: it.Counter, Promised: it.Counter, Remaining: step})
	for range 10 {
		if b.wait(step); b.asks(message.Prepare).Counter != 0 {
			t.Fatal("it asks again")
		}
	}
}

// TestReplay records all messages and resends them to all running members, without effect.
func TestReplay(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.campaign(vip)
	var tape []packet
	record := func(d time.Duration) {
		for end := c.now.Add(d); c.now.Before(end); {
			c.step()
			tape = append(tape, c.flying...)
		}
	}
	record(2 * duration)
	first := c.holder(vip)
	c.stepDown(first, vip)
	record(2 * duration)
	c.start(first, c.electorate).Campaign(c.now, lease.Candidacy{Lease: vip})
	record(2 * duration)
	c.kill(c.holder(vip))
	record(2 * duration)
	holder := c.holder(vip)
	for _, p := range tape {
		n := c.nodes[p.dst]
		if n == nil {
			continue
		}
		msg, err := message.Parse(p.bytes)
		if err != nil {
			t.Fatal(err)
		}
		arrived := slices.ContainsFunc(c.flying, func(f packet) bool { return f.src == p.src && f.dst == p.dst && string(f.bytes) == string(p.bytes) })
		if arrived {
			continue // not received for the first time yet
		}
		before := n.Status(c.now).Ignored
		n.Receive(c.now, msg)
		if n.Status(c.now).Ignored == before {
			t.Errorf("handled again: %+v", msg)
		}
	}
	c.run(3 * duration)
	if got := c.holder(vip); got != holder {
		t.Errorf("%q holds the lease, want %s", got, holder)
	}
}

// TestMistakenIdentities checks that two members that take each other for earlier processes recover.
func TestMistakenIdentities(t *testing.T) {
	c := newCluster(t, "m1", "m2")
	c.run(2 * duration)
	early := map[string]packet{}
	for _, name := range c.names { // messages of the first processes to all others
		c.start(name, c.electorate)
		for _, o := range first(c.nodes[name].Take()) {
			b, err := o.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			early[o.To] = packet{src: name, dst: o.To, bytes: b}
		}
	}
	for _, name := range c.names {
		c.start(name, c.electorate)
		c.nodes[name].Take() // lost
		msg, err := message.Parse(early[name].bytes)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[name].Receive(c.now, msg)
	}
	c.campaign(vip)
	c.awaitHolder(2 * duration)
}

func first(out []message.Outgoing, _ []lease.Event) []message.Outgoing { return out }

// FuzzReceive checks that no message causes a panic, and that messages of unknown members or for another process have no
// effect. No single message grants a lease: that takes two promises.
func FuzzReceive(f *testing.F) {
	list := voters("m1 m2 m3")
	b, err := message.Message{From: "m1", Incarnation: 1, Receiver: 1<<64 - 1, Sequence: 300, Active: 7, Desired: 8,
		Electorate: &list, Change: &message.Change{Phase: message.Proposed, Ballot: message.Ballot{Counter: 9, Owner: 2}, Value: &list},
		Items: []message.Item{
			{Kind: message.Campaign, Lease: 1, Priority: -5, Preempt: true, Campaigning: true, Epoch: 1 << 63},
			{Kind: message.Prepare, Lease: 2, Counter: 1},
			{Kind: message.Promise, Lease: 2, Counter: 1},
			{Kind: message.Propose, Lease: 2, Counter: 1, Round: 1 << 40},
			{Kind: message.Accept, Lease: 2, Counter: 1, Round: 1 << 40},
			{Kind: message.Refuse, Lease: 2, Counter: 1, Round: 3, Promised: 4, Remaining: time.Second},
			{Kind: message.Release, Lease: 2, Counter: 1, To: "m2"},
			{Kind: message.Unchanged, Lease: 1<<64 - 1},
			{Kind: message.Repeat},
		},
	}.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, uint8(1), uint16(0))
	f.Add(b, uint8(7), uint16(700))
	f.Add(b, uint8(16), uint16(1))
	f.Add(b, uint8(16+32+7), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, how uint8, later uint16) {
		msg, err := message.Parse(b)
		if err != nil {
			return
		}
		if how&16 != 0 {
			receiveAmongObservers(t, msg, how, time.Duration(later)*time.Millisecond)
			return
		}
		c := newCluster(t, "m1", "m2", "m3")
		c.campaign(vip)
		if how&8 != 0 {
			c.run(2 * duration)
		} else {
			c.run(duration / 2)
		}
		m := c.nodes["m1"]
		before := m.Status(c.now)
		now := c.now.Add(time.Duration(later) * time.Millisecond)
		if how&1 != 0 {
			msg.From, msg.Incarnation = "m2", 1002
		}
		if how&2 != 0 {
			msg.Receiver = message.Identity("m1", 1001)
		}
		if how&4 != 0 {
			for i := range msg.Items {
				msg.Items[i].Lease = lease.ID(vip)
			}
		}
		unknown := !(msg.From == "m2" || msg.From == "m3") || msg.Receiver != 0 && msg.Receiver != message.Identity("m1", 1001)
		m.Receive(now, msg)
		_, events := m.Take()
		for _, e := range events {
			if _, granted := e.(lease.Granted); granted && (unknown || before.Leases[0].Holder != "m1" && how&8 != 0) {
				t.Fatalf("%+v granted the lease", msg)
			}
		}
		if after := m.Status(now); unknown && after.Ignored != before.Ignored+1 {
			t.Fatalf("ignored %d, want %d", after.Ignored, before.Ignored+1)
		}
		m.Tick(now)
		m.Take()
	})
}

// receiveAmongObservers sends a message to a voter or an observer while another observer holds the lease. No single
// message changes the holder.
func receiveAmongObservers(t *testing.T, msg message.Message, how uint8, later time.Duration) {
	c := newMixed(t, "w1", "w2")
	c.campaign(vip)
	c.nodes["w2"].Campaign(c.now, lease.Candidacy{Lease: vip, Priority: 1})
	c.await(2*duration, "w2 holds the lease", func() bool { return c.holder(vip) == "w2" })
	dst := "m1"
	if how&32 != 0 {
		dst = "w1"
	}
	m := c.nodes[dst]
	if how&1 != 0 {
		msg.From, msg.Incarnation = "w2", c.nodes["w2"].Status(c.now).Incarnation
	}
	if how&2 != 0 {
		msg.Receiver = message.Identity(dst, m.Status(c.now).Incarnation)
	}
	if how&4 != 0 {
		for i := range msg.Items {
			msg.Items[i].Lease = lease.ID(vip)
		}
	}
	m.Receive(c.now.Add(later), msg)
	_, events := m.Take()
	for _, e := range events {
		if _, granted := e.(lease.Granted); granted {
			t.Fatalf("%+v granted the lease to %s", msg, dst)
		}
	}
	if n := len(m.Members(c.now)); n > 3+c.observers {
		t.Fatalf("%d members are known", n)
	}
	m.Tick(c.now.Add(later))
	m.Take()
}
