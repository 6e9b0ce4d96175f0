package electorate

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func electorateOf(names string) Electorate {
	return Electorate{Members: strings.Fields(names), Duration: time.Second}
}

// TestDigest checks that electorates that differ have different digests.
func TestDigest(t *testing.T) {
	seen := make(map[uint64]Electorate)
	for _, e := range []Electorate{
		electorateOf("1 2 3"), electorateOf("1 2"), electorateOf("1 23"), electorateOf("12 3"), {Members: []string{"1", "2", "3"}, Duration: 2 * time.Second},
		{Members: []string{"1", "2", "3"}, Duration: time.Second, Quorum: None},
	} {
		if other, ok := seen[e.Digest()]; ok || e.Digest() == 0 {
			t.Errorf("%+v has the digest of %+v", e, other)
		}
		seen[e.Digest()] = e
	}
}

// TestStep follows each path to its end: members that have gone leave first, and the others always form a majority.
func TestStep(t *testing.T) {
	for _, x := range []struct{ from, target, gone, way string }{
		{"1 2 3", "1 2 3", "", ""},
		{"1", "1 2 3", "", "1 2|1 2 3"},
		{"1 2 3", "1", "", "1 3|1"},
		{"1 2 3", "1 2 4", "", "1 2 3 4|1 2 4"},
		{"1 2 3", "1 2 4", "3", "1 2|1 2 4"},
		{"1 2 3", "2 4 5", "3", "1 2|1 2 4|1 2 4 5|2 4 5"},
		{"1 2 3 4 5", "2 3", "4 5", "1 2 3 5|1 2 3|2 3"},
		{"1", "2", "", "1 2|2"},
		{"1", "2", "1", "1 2|2"},
		{"1 2 3", "4 5 6", "", "1 2 3 4|2 3 4|2 3 4 5|3 4 5|3 4 5 6|4 5 6"},
	} {
		var way []string
		e, target := electorateOf(x.from), electorateOf(x.target)
		for e.Digest() != target.Digest() && len(way) < 10 {
			next := e.Step(target, strings.Fields(x.gone))
			if !e.adjacent(next) || next.Validate() != nil {
				t.Errorf("from %v to %v is no step: %v", e, next, next.Validate())
			}
			e = next
			way = append(way, strings.Join(e.Members, " "))
		}
		if got := strings.Join(way, "|"); got != x.way {
			t.Errorf("from %s to %s without %q: %s, want %s", x.from, x.target, x.gone, got, x.way)
		}
	}
	if e := electorateOf("1 2").Step(Electorate{Members: []string{"1", "2", "3"}, Duration: 2 * time.Second, Quorum: None}, nil); e.Duration != 2*time.Second || e.Quorum != None {
		t.Errorf("the rest does not come with the first step: %v", e)
	}
}

// valid draws an electorate that may be as large as a message allows.
func valid(t *rapid.T) Electorate {
	e := Electorate{Duration: rapid.SampledFrom([]time.Duration{minDuration, time.Second, MaxDuration}).Draw(t, "lease"),
		Quorum: rapid.SampledFrom([]Quorum{Majority, None}).Draw(t, "quorum")}
	for range rapid.IntRange(1, 12).Draw(t, "members") {
		name := rapid.StringMatching("[a-e]").Draw(t, "name") + strings.Repeat("x", rapid.SampledFrom([]int{0, 50, 130, 230}).Draw(t, "length"))
		member := Member(name, netip.MustParseAddrPort("10.0.0.1:7946"), rapid.SampledFrom([]string{"", "5f3a0c11", "00000001"}).Draw(t, "identity"))
		with := e
		with.Members = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(e.Members), member))))
		if with.Validate() == nil {
			e = with
		}
	}
	if len(e.Members) == 0 {
		e.Members = []string{"a"}
	}
	return e
}

// TestStepsFit checks that each step between any two valid electorates is valid and brings the target closer, with any
// gone, and that what an open electorate chooses is valid.
func TestStepsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, target := valid(t), valid(t)
		some := func(of []string, label string) []string {
			return slices.DeleteFunc(slices.Clone(of), func(string) bool { return rapid.Bool().Draw(t, label) })
		}
		if chosen := e.Choose(some(e.Members, "leaves"), some(target.without(e), "joins")); chosen.Validate() != nil {
			t.Fatalf("from %v: chose %v: %v", e, chosen, chosen.Validate())
		}
		for e.Digest() != target.Digest() {
			left := len(e.without(target)) + len(target.without(e))
			next := e.Step(target, some(e.Members, "gone"))
			if !(Committed{Electorate: e}).Leads(next) {
				t.Fatalf("from %v to %v: %v: %v", e, target, next, next.Validate())
			}
			if len(next.without(target))+len(target.without(next)) != max(left-1, 0) {
				t.Fatalf("from %v, %v is not closer to %v", e, next, target)
			}
			e = next
		}
	})
}

func TestReplaces(t *testing.T) {
	none := electorateOf("1 2")
	none.Quorum = None
	first, alone := First(electorateOf("1 2 3"), 1), First(none, 1)
	second := first.Next(electorateOf("1 2"))
	apart := First(electorateOf("4 5"), 1)
	other := none
	other.Duration = 2 * time.Second
	left, right := alone.Next(none), alone.Next(other)
	if left.Digest() < right.Digest() {
		left, right = right, left
	}
	quorate := alone.Next(electorateOf("1 2"))
	if later := left.Next(electorateOf("1 2")); later.Cluster == quorate.Cluster || later.Replaces(quorate) {
		t.Error("two clusters that gained a quorum at different numbers are the same")
	}
	for name, x := range map[string]struct {
		own, received Committed
		want          bool
	}{
		"no electorate":             {Committed{}, first, true},
		"the same":                  {first, first, false},
		"the next":                  {first, second, true},
		"the one before":            {second, first, false},
		"an independent cluster":    {first, apart.Next(electorateOf("4")), false},
		"two without a quorum":      {right, left, true},
		"two without a quorum back": {left, right, false},
		"with a quorum":             {right.Next(none), quorate, true},
		"without a quorum":          {quorate, right.Next(none), false},
	} {
		if got := x.received.Replaces(x.own); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
	}
}

func TestMember(t *testing.T) {
	for _, at := range []string{"10.0.0.1:7946", "[fd00::1]:7946"} {
		for _, identity := range []string{"", "5f3a0c11"} {
			m := Member("m1", netip.MustParseAddrPort(at), identity)
			if Name(m) != "m1" || Address(m).String() != at || strings.HasSuffix(m, "#"+identity) != (identity != "") {
				t.Errorf("%s is %s at %v", m, Name(m), Address(m))
			}
		}
	}
	if Name("m1") != "m1" || Address("m1").IsValid() || Address("m1@").IsValid() {
		t.Error("a name alone has an address")
	}
	if got := Names([]string{"a@10.0.0.1:1", "b"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %v", got)
	}
}

// TestStoredFormat keeps the format of the state file.
func TestStoredFormat(t *testing.T) {
	want := Committed{Cluster: 5, Number: 7, Electorate: Electorate{Members: []string{"m1"}, Duration: time.Second, Quorum: None}}
	b, err := json.Marshal(want)
	if err != nil || string(b) != `{"Cluster":5,"Number":7,"Members":["m1"],"Duration":1000000000,"Quorum":1}` {
		t.Errorf("stored as %s: %v", b, err)
	}
	var got Committed
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v: %v", got, err)
	}
}

func TestChoose(t *testing.T) {
	long := strings.Repeat("x", 240)
	for _, x := range []struct{ name, members, leave, join, want string }{
		{"alone", "a", "", "", "a"},
		{"the second waits for the third", "a", "", "b", "a"},
		{"the third comes with the second", "a", "", "b c", "a b c"},
		{"the fourth stands by", "a b c", "", "d", "a b c"},
		{"five", "a b c", "", "e d", "a b c d e"},
		{"one takes the place of another", "a b c", "b", "d", "a c d"},
		{"the first that joins is preferred", "a b c", "b", "z d", "a c z"},
		{"who leaves an even number stays", "a b c", "c", "", "a b c"},
		{"one of two that leave stays", "a b c d", "c d", "", "a b c"},
		{"two leave", "a b c d e", "d e", "", "a b c"},
		{"a removal may leave two", "a b", "", "", "a b"},
		{"seven at most", "a b c d e", "", "f g h i", "a b c d e f g"},
		{"more that vote already stay", "a b c d e f g h i", "", "j k", "a b c d e f g h i"},
		{"as many as fit one message", "a" + long + " b" + long, "", "c d" + long, "a" + long + " b" + long + " c"},
		{"one that does not fit keeps no other out", "a" + long + " b" + long + " e" + long, "", "d" + long + " c f", "a" + long + " b" + long + " c e" + long + " f"},
	} {
		e := electorateOf(x.members)
		if got := e.Choose(strings.Fields(x.leave), strings.Fields(x.join)); !slices.Equal(got.Members, strings.Fields(x.want)) || got.Duration != e.Duration {
			t.Errorf("%s: %v, want %s", x.name, got, x.want)
		}
		if !slices.Equal(e.Members, strings.Fields(x.members)) {
			t.Errorf("%s: the previous electorate has changed", x.name)
		}
	}
}
