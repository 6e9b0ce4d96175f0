package secondchance

import (
	"testing"

	"pgregory.net/rapid"
)

// numbers is how many there are: a member's is a hash of its name, so that all agree on it whatever else they believe.
// Two may have the same one.
const numbers = 16

// member is what a node believes of one.
type member struct{ number, at int }

// distance is how far a number is from the origin's in the circle of all.
func distance(origin, number int) int { return (number - origin + numbers) % numbers }

// next is to whom a node passes a packet on that came to its set at the origin: the next one that it knows of in the
// circle, if there is any before the origin comes again.
func next(origin, self int, view []member) (to member, ok bool) {
	for _, m := range view {
		if distance(origin, m.number) > distance(origin, self) && (!ok || distance(origin, m.number) < distance(origin, to.number)) {
			to, ok = m, true
		}
	}
	return to, ok
}

// end is what becomes of a packet.
type end int

const (
	taken    end = iota
	answered     // by a node that does not own it: with a reset
	lost         // sent to an address where nobody is, or somebody else
)

// node is what decides at one.
type node struct {
	member
	owns    bool
	refuses func() bool     // it limits what it passes on
	view    func() []member // what it believes just now
}

// follow brings a packet to the first node, and returns those that it visits. It carries the origin's number and the addressee's.
func follow(nodes []node, first int) (visited []int, how end) {
	origin, at := nodes[first].number, first
	for len(visited) <= len(nodes) {
		n := nodes[at]
		visited = append(visited, at)
		if n.owns {
			return visited, taken
		}
		to, ok := next(origin, n.number, n.view())
		if !ok || n.refuses() {
			return visited, answered
		}
		at = -1
		for i, other := range nodes {
			if other.member == to { // its kernel drops what has another number
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
		anyMember := rapid.Custom(func(t *rapid.T) member {
			return member{rapid.IntRange(0, numbers-1).Draw(t, "number"), rapid.IntRange(0, 9).Draw(t, "address")}
		})
		var real []member
		view := func() []member {
			stale := rapid.SliceOfN(anyMember, 0, 3).Draw(t, "stale")
			return append(stale, rapid.SliceOfN(rapid.SampledFrom(real), 0, len(real)).Draw(t, "known")...)
		}
		real = rapid.SliceOfNDistinct(anyMember, 1, 10, func(m member) int { return m.at }).Draw(t, "members")
		nodes := make([]node, len(real))
		for i, m := range real {
			nodes[i] = node{
				member: m, owns: rapid.IntRange(0, 9).Draw(t, "owns") == 0,
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
		held := rapid.SliceOfNDistinct(rapid.IntRange(0, numbers-1), 1, 10, rapid.ID[int]).Draw(t, "numbers")
		owner := rapid.IntRange(-1, len(held)-1).Draw(t, "owner")
		nodes := make([]node, len(held))
		for i, number := range held {
			nodes[i] = node{
				member: member{number, i}, owns: i == owner, refuses: func() bool { return false },
				view: func() (view []member) {
					for at, number := range held {
						if at == owner || rapid.Bool().Draw(t, "known") {
							view = append(view, member{number, at})
						}
					}
					return view
				},
			}
		}
		visited, how := follow(nodes, rapid.IntRange(0, len(nodes)-1).Draw(t, "first"))
		switch {
		case owner < 0 && how != answered:
			t.Fatalf("nobody answers what nobody owns: %v", visited)
		case owner >= 0 && how != taken:
			t.Fatalf("the owner %d is not found: %v", owner, visited)
		}
	})
}
