package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herald-vip/herald/lease"
)

// forge returns what member from might send to another.
func (c *cluster) forge(from, to string, sequence uint64, items ...lease.Item) lease.Message {
	f, t := c.nodes[from].Status(c.now), c.nodes[to].Status(c.now)
	return lease.Message{
		From: from, Incarnation: f.Incarnation, Receiver: lease.Identity(to, t.Incarnation), Sequence: sequence,
		Active: f.Active.Digest(), Settled: true, Items: items,
	}
}

// answers are the items that a member sends to another.
func answers(n *node, to string) []lease.Item {
	var items []lease.Item
	out, _ := n.Take()
	for _, o := range out {
		if o.To == to {
			items = append(items, o.Items...)
		}
	}
	return items
}

func TestAbsurdCountersAreIgnored(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	for i, kind := range []lease.Kind{lease.Prepare, lease.Propose} {
		ignored := m.Status(c.now).Ignored
		m.Receive(c.now, c.forge("m2", "m1", uint64(1000+i), lease.Item{Kind: kind, Lease: lease.ID(vip), Counter: 1<<64 - 1}))
		if got := answers(m, "m2"); len(got) != 0 {
			t.Errorf("kind %d: answered %+v", kind, got)
		}
		if m.Status(c.now).Ignored != ignored+1 {
			t.Errorf("kind %d: not counted", kind)
		}
	}
	c.stand(vip)
	c.awaitHolder(duration)
}

func TestForeignLeasesAreBounded(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	granted := 0
	for i := range 9000 {
		m.Receive(c.now, c.forge("m2", "m1", uint64(1000+i),
			lease.Item{Kind: lease.Propose, Lease: uint64(i), Counter: 1},
			lease.Item{Kind: lease.Stand, Lease: uint64(i), Standing: true}))
		granted += len(answers(m, "m2"))
	}
	if granted != 8192 {
		t.Errorf("%d leases are voted on, want 8192", granted)
	}
	c.stand(vip) // one's own is always possible
	c.awaitHolder(duration)
	c.run(4 * duration) // idle ones are forgotten
	m.Receive(c.now, c.forge("m2", "m1", 19000, lease.Item{Kind: lease.Propose, Lease: 77, Counter: 1}))
	if got := answers(m, "m2"); len(got) != 1 || got[0].Kind != lease.Accept {
		t.Errorf("after the idle leases were forgotten: %+v", got)
	}
}

func TestStrangersAreIgnored(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.run(2 * duration)
	m := c.nodes["m1"]
	valid := c.forge("m2", "m1", 1000, lease.Item{Kind: lease.Propose, Lease: 1, Counter: 1})
	for name, change := range map[string]func(*lease.Message){
		"a stranger":              func(m *lease.Message) { m.From = "m9" },
		"oneself":                 func(m *lease.Message) { m.From = "m1" },
		"no incarnation":          func(m *lease.Message) { m.Incarnation = 0 },
		"an earlier process":      func(m *lease.Message) { m.Incarnation-- },
		"meant for another":       func(m *lease.Message) { m.Receiver = lease.Identity("m3", 1003) },
		"meant for an earlier us": func(m *lease.Message) { m.Receiver = lease.Identity("m1", 900) },
		"before the handshake":    func(m *lease.Message) { m.Receiver = 0 },
		"an old sequence number":  func(m *lease.Message) { m.Sequence = 1 },
		"no sequence number":      func(m *lease.Message) { m.Sequence = 0 },
	} {
		msg, ignored := valid, m.Status(c.now).Ignored
		change(&msg)
		m.Receive(c.now, msg)
		for _, it := range answers(m, "m2") {
			if it.Kind == lease.Accept {
				t.Errorf("%s: granted", name)
			}
		}
		if got := m.Status(c.now).Ignored; got != ignored+1 {
			t.Errorf("%s: ignored %d, want %d", name, got, ignored+1)
		}
		valid.Sequence++
	}
	m.Receive(c.now, valid)
	if got := answers(m, "m2"); len(got) != 1 || got[0].Kind != lease.Accept {
		t.Errorf("the valid one: %+v", got)
	}
}

// An answer counts for the round that it answers, which began before it was
// given: one to an earlier round must not extend the lease.
func TestAnswersToEarlierRounds(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	holder := c.awaitHolder(2 * duration)
	c.run(duration)
	n, voter := c.nodes[holder], c.others(holder)[0]
	s := n.Status(c.now).Leases[0]
	c.isolate(holder, true)
	c.run(duration / 3) // another round, unanswered
	until := n.until[vip]
	for round := range uint64(100) {
		for _, counter := range []uint64{s.Epoch, s.Epoch + 1} {
			n.Receive(c.now, c.forge(voter, holder, 100000+round*2+counter, lease.Item{Kind: lease.Accept, Lease: lease.ID(vip), Counter: counter, Round: round}))
		}
		if _, events := n.Take(); len(events) > 0 {
			g, ok := events[0].(lease.Granted)
			if !ok || len(events) > 1 {
				t.Fatalf("events %+v", events)
			}
			if round == 0 || !g.Until.After(until) {
				t.Fatalf("round %d: %+v", round, g)
			}
			return // the present round: the vote is as good as any
		}
	}
	t.Fatal("no round was granted")
}

// TestReplay records everything, and sends all of it again to whoever runs:
// nobody takes any notice.
func TestReplay(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	c.stand(vip)
	var tape []packet
	record := func(d time.Duration) {
		for end := c.now.Add(d); c.now.Before(end); {
			c.step()
			tape = append(tape, c.flying...)
		}
	}
	record(2 * duration)
	first := c.holder(vip)
	c.resign(first, vip)
	record(2 * duration)
	c.start(first, c.electorate).Stand(c.now, lease.Candidacy{Lease: vip})
	record(2 * duration)
	c.kill(c.holder(vip))
	record(2 * duration)
	holder := c.holder(vip)
	for _, p := range tape {
		n := c.nodes[p.to]
		if n == nil {
			continue
		}
		msg, err := lease.ParseMessage(p.bytes)
		if err != nil {
			t.Fatal(err)
		}
		arrived := slices.ContainsFunc(c.flying, func(f packet) bool { return f.from == p.from && f.to == p.to && string(f.bytes) == string(p.bytes) })
		if arrived {
			continue // has yet to arrive for the first time
		}
		before := n.Status(c.now).Ignored
		n.Receive(c.now, msg)
		if n.Status(c.now).Ignored == before {
			t.Errorf("taken again: %+v", msg)
		}
	}
	c.run(3 * duration)
	if got := c.holder(vip); got != holder {
		t.Errorf("%q holds the lease, want %s", got, holder)
	}
}

func TestDeterministic(t *testing.T) {
	run := func() (sent, bytes int, holder string) {
		c := newCluster(t, "m1", "m2", "m3")
		c.stand("a", "b", "c", "d", vip)
		c.run(3 * duration)
		c.kill(c.holder(vip))
		c.run(3 * duration)
		return c.sent, c.bytes, c.holder(vip)
	}
	sent, bytes, holder := run()
	for range 3 {
		if s, b, h := run(); s != sent || b != bytes || h != holder {
			t.Errorf("%d messages, %d bytes, %s; before %d, %d, %s", s, b, h, sent, bytes, holder)
		}
	}
}

// Two members that take each other for earlier processes find out.
func TestMistakenIdentities(t *testing.T) {
	c := newCluster(t, "m1", "m2")
	c.run(2 * duration)
	early := map[string]packet{}
	for _, name := range c.names { // what the first processes say to whoever is there
		c.start(name, c.electorate)
		for _, o := range first(c.nodes[name].Take()) {
			b, err := o.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			early[o.To] = packet{from: name, to: o.To, bytes: b}
		}
	}
	for _, name := range c.names {
		c.start(name, c.electorate)
		c.nodes[name].Take() // lost
		msg, err := lease.ParseMessage(early[name].bytes)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[name].Receive(c.now, msg)
	}
	c.stand(vip)
	c.awaitHolder(2 * duration)
}

func first(out []lease.Outgoing, _ []lease.Event) []lease.Outgoing { return out }
