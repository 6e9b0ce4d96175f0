package secondchance

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func at(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i), 1}) }

func (a arc) has(n Number) bool { return (a.from <= n && n <= a.to) != a.outside }

func TestWay(t *testing.T) {
	m := func(number Number) Member { return Member{Number: number, Addr: at(int(number))} }
	for name, tt := range map[string]struct {
		self   Number
		others []Member
		to     Number // 0: none
		stop   []Number
		pass   []Number
	}{
		"alone":                {self: 5},
		"the nearest ahead":    {self: 5, others: []Member{m(9), m(3), m(7)}, to: 7, stop: []Number{6, 7}, pass: []Number{5, 3, 9, 1, numbers - 1}},
		"round the end":        {self: 9, others: []Member{m(7), m(3)}, to: 3, stop: []Number{10, numbers - 1, 1, 3}, pass: []Number{9, 7, 4}},
		"of two":               {self: 5, others: []Member{m(9)}, to: 9, stop: []Number{6, 8, 9}, pass: []Number{5, 4, 10}},
		"the same number":      {self: 5, others: []Member{{Number: 5, Addr: at(9)}}},
		"none of IPv6":         {self: 5, others: []Member{{Number: 7, Addr: netip.MustParseAddr("fd00::7")}, m(9)}, to: 9},
		"one that is silent":   {self: 5, others: []Member{{Number: 7, Addr: at(7), Silent: true}, m(9)}, to: 9},
		"as many as there may": {self: 1, others: []Member{m(2), m(3), m(4), m(5), m(6), m(7), m(8)}, to: 2},
		"too many":             {self: 1, others: []Member{m(2), m(3), m(4), m(5), m(6), m(7), m(8), m(9)}},
	} {
		t.Run(name, func(t *testing.T) {
			var to Member
			if path := way(m(tt.self), tt.others); len(path) > 0 {
				to = path[0]
			}
			if to.Number != tt.to {
				t.Fatalf("next is %v", to)
			}
			a := stops(tt.self, to.Number)
			for _, n := range tt.stop {
				if !a.has(n) {
					t.Errorf("what came to %d goes on to %d", n, to.Number)
				}
			}
			for _, n := range tt.pass {
				if a.has(n) {
					t.Errorf("what came to %d does not go on to %d", n, to.Number)
				}
			}
		})
	}
}

// The circle's rule by distances, as the package's comment has it, is that of arcs, which the kernel is told.
func TestStopsAreDistances(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) Number { return Number(rapid.IntRange(1, numbers-1).Draw(t, "number")) })
	rapid.Check(t, func(t *rapid.T) {
		self, to, origin := number.Draw(t, "self"), number.Draw(t, "to"), number.Draw(t, "origin")
		distance := func(n Number) Number { return (n - origin) % numbers }
		if self != to && stops(self, to).has(origin) != (distance(to) <= distance(self)) {
			t.Fatalf("origin %d at %d before %d", origin, self, to)
		}
	})
}

func TestNumberOf(t *testing.T) {
	got := make(map[string]Number)
	for _, name := range []string{"m1", "m2", "m3", ""} {
		got[name] = NumberOf(name)
	}
	// Others' versions have to come to the same.
	if diff := cmp.Diff(map[string]Number{"m1": 205, "m2": 8304, "m3": 20, "": 4097}, got); diff != "" {
		t.Error(diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		if n := NumberOf(rapid.String().Draw(t, "name")); n == 0 || n&0xcf00 != 0 {
			t.Fatal(n)
		}
	})
}

// end is what becomes of a packet.
type end int

const (
	taken end = iota
	reset     // by a node that does not own it: with a reset
	lost      // sent to an address where nobody is, or somebody else
)

// node is what decides at one.
type node struct {
	Member
	owns    bool
	refuses func() bool     // it limits what it passes on
	view    func() []Member // what it believes just now
}

// follow brings a packet to the first node, and returns those that it visits. It carries the origin's number and the addressee's.
func follow(nodes []node, first int) (visited []int, how end) {
	origin, at := nodes[first].Number, first
	for len(visited) <= len(nodes) {
		n := nodes[at]
		visited = append(visited, at)
		if n.owns {
			return visited, taken
		}
		path := way(n.Member, n.view())
		if len(path) == 0 || stops(n.Number, path[0].Number).has(origin) || n.refuses() {
			return visited, reset
		}
		to := path[0]
		at = -1
		for i, other := range nodes {
			if other.Number == to.Number && other.Addr == to.Addr { // its kernel drops what has another number
				at = i
			}
		}
		if at < 0 {
			return visited, lost
		}
	}
	return visited, lost
}

// Whatever nodes believe, of whom there is, who is where and who has which number, and however that changes while a
// packet is on its way: it visits no node twice.
func TestNoNodeTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few numbers, so that many are the same, at both ends of the circle.
		number := rapid.SampledFrom([]Number{1, 2, 3, 4, 5, numbers - 3, numbers - 2, numbers - 1})
		anyMember := rapid.Custom(func(t *rapid.T) Member {
			return Member{Number: number.Draw(t, "number"), Addr: at(rapid.IntRange(0, 9).Draw(t, "address")), Silent: rapid.Bool().Draw(t, "silent")}
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

// If each node knows the owner, and knows nothing wrong, a packet ends there wherever it came in; without an owner, one node answers.
func TestOwnerIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.SliceOfNDistinct(rapid.IntRange(1, numbers-1), 1, most, rapid.ID[int]).Draw(t, "numbers")
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
			t.Fatalf("nobody answers what nobody owns: %v", visited)
		case owner >= 0 && how != taken:
			t.Fatalf("the owner %d is not found: %v", owner, visited)
		}
	})
}
