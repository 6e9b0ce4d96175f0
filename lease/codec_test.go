package lease_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/herald-vip/herald/lease"
	"pgregory.net/rapid"
)

// full has one of everything.
var full = lease.Message{
	From: "m1", Incarnation: 1, Receiver: 1<<64 - 1, Sequence: 300, Active: 7, Pending: 8, Abstaining: true, Settled: true,
	Electorates: []lease.Electorate{electorate("m1 m2 m3"), {Members: []string{"m1"}, Duration: time.Second, Quorum: lease.None}},
	Items: []lease.Item{
		{Kind: lease.Stand, Lease: 1, Priority: -5, Preempt: true, Standing: true, Epoch: 1 << 63},
		{Kind: lease.Stand, Lease: 1, Priority: 100},
		{Kind: lease.Prepare, Lease: 2, Counter: 1},
		{Kind: lease.Promise, Lease: 2, Counter: 1},
		{Kind: lease.Propose, Lease: 2, Counter: 1, Round: 1 << 40},
		{Kind: lease.Accept, Lease: 2, Counter: 1, Round: 1 << 40},
		{Kind: lease.Refuse, Lease: 2, Counter: 1, Round: 3, Promised: 4, Remaining: 123456 * time.Microsecond},
		{Kind: lease.Release, Lease: 2, Counter: 1, To: "m2"},
		{Kind: lease.Release, Lease: 2, Counter: 1},
		{Kind: lease.Unchanged, Lease: 1<<64 - 1},
		{Kind: lease.Repeat},
	},
}

func TestCodec(t *testing.T) {
	b, err := full.AppendBinary([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	b = b[len("before"):]
	got, err := lease.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Error(diff)
	}
	cuts := 0
	for i := range b {
		if _, err := lease.ParseMessage(b[:i]); err != nil {
			cuts++
		}
	}
	if items := len(full.Items); cuts != len(b)-items {
		t.Errorf("%d of %d prefixes are refused, want all but the %d that end before an item", cuts, len(b), items)
	}
}

func TestCodecRefuses(t *testing.T) {
	valid, err := lease.Message{From: "m1"}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int, x byte) []byte {
		b := append([]byte(nil), valid...)
		b[i] = x
		return b
	}
	for want, b := range map[string][]byte{
		"version 2":       change(0, 2),
		"3 electorates":   change(1, 3<<2),
		"cut short":       append(append([]byte(nil), valid...), byte(lease.Prepare)),
		"unknown kind":    append(append([]byte(nil), valid...), make([]byte, 9)...),
		"at most 1200":    make([]byte, lease.MaxMessage+1),
		"lease message: ": nil,
	} {
		if _, err := lease.ParseMessage(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, m := range []lease.Message{
		{From: strings.Repeat("x", 256)},
		{Electorates: make([]lease.Electorate, 3)},
		{Items: make([]lease.Item, 200)},
	} {
		if _, err := m.AppendBinary(nil); err == nil {
			t.Errorf("%.60v: no error", m)
		}
	}
}

// A remaining time is rounded up: a candidate that came back too early would be
// refused again.
func TestRemainingIsRoundedUp(t *testing.T) {
	b, err := lease.Message{Items: []lease.Item{{Kind: lease.Refuse, Remaining: 1001}}}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lease.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Items[0].Remaining; got != 2*time.Microsecond {
		t.Errorf("1,001 ns arrive as %v, want 2µs", got)
	}
}

// TestBatches renews 1,000 leases, and counts what that costs.
func TestBatches(t *testing.T) {
	c := newCluster(t, "m1", "m2", "m3")
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("vip-%d", i))
	}
	c.stand(names...)
	c.await(2*duration, "all held", func() bool {
		for _, name := range names {
			if c.holder(name) == "" {
				return false
			}
		}
		return true
	})
	held := map[string]int{}
	for _, name := range names {
		held[c.holder(name)]++
	}
	c.run(3 * duration)
	sent, bytes := c.sent, c.bytes
	c.run(10 * duration)
	// Each member tells 2 others of 1,000 candidacies, and asks for or grants its
	// share of the renewals, three times per Duration.
	messages, size := (c.sent-sent)/30, (c.bytes-bytes)/30
	t.Logf("leases %v; per third of a lease: %d messages, %d bytes", held, messages, size)
	if messages > 150 {
		t.Errorf("%d messages, want at most 150", messages)
	}
	for _, name := range names {
		if c.holder(name) == "" {
			t.Fatalf("%s has no holder", name)
		}
	}
}

// FuzzParseMessage: nothing received panics, and what is understood survives
// another trip.
func FuzzParseMessage(f *testing.F) {
	b, err := full.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := lease.ParseMessage(b)
		if err != nil {
			return
		}
		again, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if got, err := lease.ParseMessage(again); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v became %+v: %v", m, got, err)
		}
	})
}

// FuzzReceive: no message panics, none from a stranger or for another process
// has an effect, and no one message grants a lease: that takes two promises.
func FuzzReceive(f *testing.F) {
	b, err := full.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, uint8(1), uint16(0))
	f.Add(b, uint8(7), uint16(700))
	f.Add(b, uint8(16), uint16(1))
	f.Add(b, uint8(16+32+7), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, how uint8, later uint16) {
		msg, err := lease.ParseMessage(b)
		if err != nil {
			return
		}
		if how&16 != 0 {
			receiveAmongGuests(t, msg, how, time.Duration(later)*time.Millisecond)
			return
		}
		c := newCluster(t, "m1", "m2", "m3")
		c.stand(vip)
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
			msg.Receiver = lease.Identity("m1", 1001)
		}
		if how&4 != 0 {
			for i := range msg.Items {
				msg.Items[i].Lease = lease.ID(vip)
			}
		}
		stranger := !(msg.From == "m2" || msg.From == "m3") || msg.Receiver != 0 && msg.Receiver != lease.Identity("m1", 1001)
		m.Receive(now, msg)
		_, events := m.Take()
		for _, e := range events {
			if _, granted := e.(lease.Granted); granted && (stranger || before.Leases[0].Holder != "m1" && how&8 != 0) {
				t.Fatalf("%+v granted the lease", msg)
			}
		}
		if after := m.Status(now); stranger && after.Ignored != before.Ignored+1 {
			t.Fatalf("ignored %d, want %d", after.Ignored, before.Ignored+1)
		}
		m.Tick(now)
		m.Take()
	})
}

func TestCodecRoundTrip(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) lease.Item {
		it := lease.Item{Kind: lease.Kind(rapid.IntRange(1, 7).Draw(t, "kind")), Lease: rapid.Uint64().Draw(t, "lease")}
		number := func() uint64 { return rapid.Uint64().Draw(t, "number") }
		switch it.Kind {
		case lease.Stand:
			it.Priority, it.Epoch = rapid.Int().Draw(t, "priority"), number()
			it.Preempt, it.Standing = rapid.Bool().Draw(t, "preempt"), rapid.Bool().Draw(t, "standing")
		case lease.Propose, lease.Accept:
			it.Counter, it.Round = number(), number()
		case lease.Refuse:
			it.Counter, it.Round, it.Promised = number(), number(), number()
			it.Remaining = time.Duration(rapid.IntRange(0, 60_000_000).Draw(t, "µs")) * time.Microsecond
		case lease.Release:
			it.Counter, it.To = number(), rapid.StringN(0, 20, 60).Draw(t, "to")
		default:
			it.Counter = number()
		}
		return it
	})
	rapid.Check(t, func(t *rapid.T) {
		m := lease.Message{
			From: rapid.StringN(0, 60, 253).Draw(t, "from"), Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			Sequence: rapid.Uint64().Draw(t, "sequence"), Items: rapid.SliceOfN(item, 1, 10).Draw(t, "items"),
		}
		b, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := lease.ParseMessage(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// receiveAmongGuests has a voter or a guest receive a message while another guest holds
// the lease, which no message alone changes.
func receiveAmongGuests(t *testing.T, msg lease.Message, how uint8, later time.Duration) {
	c := newMixed(t, "w1", "w2")
	c.stand(vip)
	c.nodes["w2"].Stand(c.now, lease.Candidacy{Lease: vip, Priority: 1})
	c.await(2*duration, "w2 holds the lease", func() bool { return c.holder(vip) == "w2" })
	to := "m1"
	if how&32 != 0 {
		to = "w1"
	}
	m := c.nodes[to]
	if how&1 != 0 {
		msg.From, msg.Incarnation = "w2", c.nodes["w2"].Status(c.now).Incarnation
	}
	if how&2 != 0 {
		msg.Receiver = lease.Identity(to, m.Status(c.now).Incarnation)
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
			t.Fatalf("%+v granted the lease to %s", msg, to)
		}
	}
	if n := len(m.Members(c.now)); n > 3+c.guests {
		t.Fatalf("%d members are known", n)
	}
	m.Tick(c.now.Add(later))
	m.Take()
}
