package message

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/herald-vip/herald/election/electorate"
	"pgregory.net/rapid"
)

// full sets every field and kind.
var full = Message{
	From: "m1", Incarnation: 1, Receiver: 1<<64 - 1, Sequence: 300, Cluster: 6, Number: 300, Active: 7, Desired: 8, Abstaining: true, Heard: true,
	Electorate: &electorate.Electorate{Members: []string{"m1", "m2", "m3"}, Duration: time.Second},
	Change: &Change{Phase: Promised, Ballot: Ballot{9, 1}, Accepted: Ballot{8, 1 << 63},
		Value: &electorate.Electorate{Members: []string{"m1"}, Duration: time.Second, Quorum: electorate.None}},
	Items: []Item{
		{Kind: Campaign, Lease: 1, Priority: -5, Preempt: true, Campaigning: true, Epoch: 1 << 63},
		{Kind: Campaign, Lease: 1, Priority: 100},
		{Kind: Prepare, Lease: 2, Counter: 1},
		{Kind: Promise, Lease: 2, Counter: 1},
		{Kind: Propose, Lease: 2, Counter: 1, Round: 1 << 40},
		{Kind: Accept, Lease: 2, Counter: 1, Round: 1 << 40},
		{Kind: Refuse, Lease: 2, Counter: 1, Round: 3, Promised: 4, Remaining: 123456 * time.Microsecond},
		{Kind: Release, Lease: 2, Counter: 1, To: "m2"},
		{Kind: Release, Lease: 2, Counter: 1},
		{Kind: Unchanged, Lease: 1<<64 - 1},
		{Kind: Repeat},
	},
}

func TestCodec(t *testing.T) {
	b, err := full.AppendBinary([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	b = b[len("before"):]
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, got); diff != "" {
		t.Error(diff)
	}
	cuts := 0
	for i := range b {
		if _, err := Parse(b[:i]); err != nil {
			cuts++
		}
	}
	if items := len(full.Items); cuts != len(b)-items {
		t.Errorf("%d of %d prefixes are refused, want all but the %d that end before an item", cuts, len(b), items)
	}
}

func TestCodecRefuses(t *testing.T) {
	valid, err := Message{From: "m1"}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int, x byte) []byte {
		b := append([]byte(nil), valid...)
		b[i] = x
		return b
	}
	for want, b := range map[string][]byte{
		"version 1":       change(0, 1),
		"unknown phase":   append(change(1, flagChange), make([]byte, 11)...),
		"cut short":       append(append([]byte(nil), valid...), byte(Prepare)),
		"unknown kind":    append(append([]byte(nil), valid...), make([]byte, 9)...),
		"at most 1200":    make([]byte, MaxSize+1),
		"lease message: ": nil,
	} {
		if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, m := range []Message{
		{From: strings.Repeat("x", 256)},
		{Items: make([]Item, 200)},
	} {
		if _, err := m.AppendBinary(nil); err == nil {
			t.Errorf("%.60v: no error", m)
		}
	}
}

// TestRemainingIsRoundedUp checks that a candidate that returns after the remaining time is not refused again.
// TestLargestElectorateFits checks that a message of any member has room for any valid electorate.
func TestLargestElectorateFits(t *testing.T) {
	e := electorate.Electorate{Duration: electorate.MaxDuration}
	for size, i := 0, byte('a'); ; i++ {
		e.Members = append(e.Members, string(i)+strings.Repeat("x", electorate.MaxName-1))
		if e.Validate() != nil {
			e.Members[size] = string(i)
			for long := e; ; e = long {
				long.Members = append(slices.Clone(e.Members[:size]), e.Members[size]+"x")
				if long.Validate() != nil {
					break
				}
			}
			break
		}
		size++
	}
	for name, m := range map[string]Message{
		"description": {Electorate: &e}, "change": {Change: &Change{Phase: Promised, Ballot: Ballot{1 << 62, 1}, Accepted: Ballot{1 << 62, 1}, Value: &e}},
	} {
		m.From, m.Number, m.Sequence = strings.Repeat("x", electorate.MaxName), 1<<62, 1<<62
		if b, err := m.AppendBinary(nil); err != nil || len(b) < 1100 {
			t.Errorf("%s: %d bytes: %v", name, len(b), err)
		}
	}
}

func TestRemainingIsRoundedUp(t *testing.T) {
	b, err := Message{Items: []Item{{Kind: Refuse, Remaining: 1001}}}.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Items[0].Remaining; got != 2*time.Microsecond {
		t.Errorf("1,001 ns arrive as %v, want 2µs", got)
	}
}

// FuzzParse checks that no input causes a panic, and that parsed messages survive encoding.
func FuzzParse(f *testing.F) {
	b, err := full.AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if got, err := Parse(again); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v became %+v: %v", m, got, err)
		}
	})
}

func TestCodecRoundTrip(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) Item {
		it := Item{Kind: Kind(rapid.IntRange(1, 7).Draw(t, "kind")), Lease: rapid.Uint64().Draw(t, "lease")}
		number := func() uint64 { return rapid.Uint64().Draw(t, "number") }
		switch it.Kind {
		case Campaign:
			it.Priority, it.Epoch = rapid.Int().Draw(t, "priority"), number()
			it.Preempt, it.Campaigning = rapid.Bool().Draw(t, "preempt"), rapid.Bool().Draw(t, "standing")
		case Propose, Accept:
			it.Counter, it.Round = number(), number()
		case Refuse:
			it.Counter, it.Round, it.Promised = number(), number(), number()
			it.Remaining = time.Duration(rapid.IntRange(0, 60_000_000).Draw(t, "µs")) * time.Microsecond
		case Release:
			it.Counter, it.To = number(), rapid.StringN(0, 20, 60).Draw(t, "to")
		default:
			it.Counter = number()
		}
		return it
	})
	rapid.Check(t, func(t *rapid.T) {
		m := Message{
			From: rapid.StringN(0, 60, 253).Draw(t, "from"), Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			Sequence: rapid.Uint64().Draw(t, "sequence"), Items: rapid.SliceOfN(item, 1, 10).Draw(t, "items"),
		}
		b, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
