package secondchance

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func at(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i), 1}) }

func (a arc) has(n Number) bool { return (a.from <= n && n <= a.dst) != a.outside }

func TestRing(t *testing.T) {
	m := func(number Number) Member { return Member{Number: number, Addr: at(int(number))} }
	for name, tt := range map[string]struct {
		self   Number
		others []Member
		next   Number // 0: none
		stop   []Number
		pass   []Number
	}{
		"alone":               {self: 5},
		"the nearest ahead":   {self: 5, others: []Member{m(9), m(3), m(7)}, next: 7, stop: []Number{6, 7}, pass: []Number{5, 3, 9, 1, numbers - 1}},
		"round the end":       {self: 9, others: []Member{m(7), m(3)}, next: 3, stop: []Number{10, numbers - 1, 1, 3}, pass: []Number{9, 7, 4}},
		"of two members":      {self: 5, others: []Member{m(9)}, next: 9, stop: []Number{6, 8, 9}, pass: []Number{5, 4, 10}},
		"the same number":     {self: 5, others: []Member{{Number: 5, Addr: at(9)}}},
		"no IPv6 member":      {self: 5, others: []Member{{Number: 7, Addr: netip.MustParseAddr("fd00::7")}, m(9)}, next: 9},
		"no timed-out member": {self: 5, others: []Member{{Number: 7, Addr: at(7), TimedOut: true}, m(9)}, next: 9},
		"the most members":    {self: 1, others: []Member{m(2), m(3), m(4), m(5), m(6), m(7), m(8)}, next: 2},
		"too many members":    {self: 1, others: []Member{m(2), m(3), m(4), m(5), m(6), m(7), m(8), m(9)}},
	} {
		t.Run(name, func(t *testing.T) {
			var next Member
			if path := ring(m(tt.self), tt.others); len(path) > 0 {
				next = path[0]
			}
			if next.Number != tt.next {
				t.Fatalf("next member %v", next)
			}
			a := stops(tt.self, next.Number)
			for _, n := range tt.stop {
				if !a.has(n) {
					t.Errorf("packets of ingress member %d go on to %d", n, next.Number)
				}
			}
			for _, n := range tt.pass {
				if a.has(n) {
					t.Errorf("packets of ingress member %d do not go on to %d", n, next.Number)
				}
			}
		})
	}
}

// The rule by distances of the package comment equals the rule by arcs in the kernel.
func TestStopsAreDistances(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) Number { return Number(rapid.IntRange(1, numbers-1).Draw(t, "number")) })
	rapid.Check(t, func(t *rapid.T) {
		self, next, ingress := number.Draw(t, "self"), number.Draw(t, "next"), number.Draw(t, "ingress")
		distance := func(n Number) Number { return (n - ingress) % numbers }
		if self != next && stops(self, next).has(ingress) != (distance(next) <= distance(self)) {
			t.Fatalf("ingress member %d at %d before %d", ingress, self, next)
		}
	})
}

func TestNumberOf(t *testing.T) {
	got := make(map[string]Number)
	for _, name := range []string{"m1", "m2", "m3", ""} {
		got[name] = NumberOf(name)
	}
	// All versions have to agree.
	if diff := cmp.Diff(map[string]Number{"m1": 205, "m2": 8304, "m3": 20, "": 4097}, got); diff != "" {
		t.Error(diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		if n := NumberOf(rapid.String().Draw(t, "name")); n == 0 || n&0xcf00 != 0 {
			t.Fatal(n)
		}
	})
}

// end is the fate of a packet.
type end int

const (
	taken end = iota
	reset     // answered with a reset by a node that is not the owning member
	lost      // sent to an address without a node, or with a node of another number
)

// node holds the inputs of a node's decision.
type node struct {
	Member
	owns    bool
	refuses func() bool     // whether a limit applies
	view    func() []Member // the members that it knows at the moment
}

// follow sends a packet to the first node, its ingress member, and returns the nodes that it visits.
func follow(nodes []node, first int) (visited []int, how end) {
	ingress, at := nodes[first].Number, first
	for len(visited) <= len(nodes) {
		n := nodes[at]
		visited = append(visited, at)
		if n.owns {
			return visited, taken
		}
		path := ring(n.Member, n.view())
		if len(path) == 0 || stops(n.Number, path[0].Number).has(ingress) || n.refuses() {
			return visited, reset
		}
		next := path[0]
		at = -1
		for i, other := range nodes {
			if other.Number == next.Number && other.Addr == next.Addr { // its kernel drops packets for another number
				at = i
			}
		}
		if at < 0 {
			return visited, lost
		}
	}
	return visited, lost
}

// A packet visits no node twice, even if the nodes know wrong members, addresses and numbers, and even if these change
// while it is on its way.
func TestNoNodeTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few numbers, so that many are equal, at both ends of the ring.
		number := rapid.SampledFrom([]Number{1, 2, 3, 4, 5, numbers - 3, numbers - 2, numbers - 1})
		anyMember := rapid.Custom(func(t *rapid.T) Member {
			return Member{Number: number.Draw(t, "number"), Addr: at(rapid.IntRange(0, 9).Draw(t, "address")), TimedOut: rapid.Bool().Draw(t, "timed out")}
		})
		var real []Member
		view := func() []Member {
			stale := rapid.SliceOfN(anyMember, 0, 3).Draw(t, "stale")
			return append(stale, rapid.SliceOfN(rapid.SampledFrom(real), 0, len(real)).Draw(t, "known")...)
		}
		real = rapid.SliceOfNDistinct(anyMember, 1, 10, func(m Member) netip.Addr { return m.Addr }).Draw(t, "members")
		nodes := make([]node, len(real))
		for i, m := range real {
			nodes[i] = node{
				Member: m, owns: rapid.IntRange(0, 9).Draw(t, "owns") == 0,
				refuses: func() bool { return rapid.IntRange(0, 9).Draw(t, "refuses") == 0 }, view: view,
			}
		}
		visited, _ := follow(nodes, rapid.IntRange(0, len(nodes)-1).Draw(t, "first"))
		seen := make(map[int]bool)
		for _, at := range visited {
			if seen[at] {
				t.Fatalf("node %d is visited twice: %v", at, visited)
			}
			seen[at] = true
		}
	})
}

// If each node knows the owning member and has no wrong information, each packet reaches it. Without an owning member one node answers.
func TestOwnerIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.SliceOfNDistinct(rapid.IntRange(1, numbers-1), 1, maxMembers, rapid.ID[int]).Draw(t, "numbers")
		owner := rapid.IntRange(-1, len(held)-1).Draw(t, "owner")
		nodes := make([]node, len(held))
		for i, number := range held {
			nodes[i] = node{
				Member: Member{Number: Number(number), Addr: at(i)}, owns: i == owner, refuses: func() bool { return false },
				view: func() (view []Member) {
					for j, number := range held {
						if j != i && (j == owner || rapid.Bool().Draw(t, "known")) {
							view = append(view, Member{Number: Number(number), Addr: at(j)})
						}
					}
					return view
				},
			}
		}
		visited, how := follow(nodes, rapid.IntRange(0, len(nodes)-1).Draw(t, "first"))
		switch {
		case owner < 0 && how != reset:
			t.Fatalf("no node answers a packet without an owning member: %v", visited)
		case owner >= 0 && how != taken:
			t.Fatalf("the owning member %d is not found: %v", owner, visited)
		}
	})
}
