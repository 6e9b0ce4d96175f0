package rendezvous_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/internal/rendezvous"
)

// The weights equal the results of an independent implementation.
func TestWeight(t *testing.T) {
	for _, tt := range []struct {
		addr, node string
		want       int
	}{
		{"192.0.2.1", "n1", 101870},
		{"192.0.2.1", "n2", 807799},
		{"192.0.2.1", "worker-1.example", 196725},
		{"192.0.2.2", "n1", 297400},
		{"192.0.2.2", "n2", 335885},
		{"192.0.2.2", "worker-1.example", 309402},
		{"2001:db8::1", "n1", 70877},
		{"2001:db8::1", "n2", 421019},
		{"2001:db8::1", "worker-1.example", 818221},
		{"::ffff:192.0.2.1", "n1", 101870},
	} {
		if got := rendezvous.Weight(netip.MustParseAddr(tt.addr), tt.node); got != tt.want {
			t.Errorf("%s on %s: weight %d, want %d", tt.addr, tt.node, got, tt.want)
		}
	}
}

// candidates returns nodes in the order of preference.
func candidates(addr netip.Addr, nodes []string) []string {
	return slices.SortedFunc(slices.Values(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(rendezvous.Weight(addr, b), rendezvous.Weight(addr, a)), cmp.Compare(a, b))
	})
}

func TestCandidates(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	nodes := []string{"worker-1.example", "n1", "n2"}
	if got, want := candidates(addr, nodes), []string{"n2", "worker-1.example", "n1"}; !slices.Equal(got, want) {
		t.Errorf("candidates are %v, want %v", got, want)
	}
}

// Removing a node keeps the order of the others: only its own addresses move.
func TestCandidatesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`), 1, 30, rapid.ID[string]).Draw(t, "nodes")
		gone := rapid.SampledFrom(nodes).Draw(t, "gone")
		want := slices.DeleteFunc(candidates(addr, nodes), func(n string) bool { return n == gone })
		left := rapid.Permutation(slices.DeleteFunc(nodes, func(n string) bool { return n == gone })).Draw(t, "left")
		if got := candidates(addr, left); !slices.Equal(got, want) {
			t.Errorf("without %s the candidates are %v, want %v", gone, got, want)
		}
	})
}

// Neighbouring addresses spread evenly over nodes with similar names, and the addresses of
// a removed node over the rest.
func TestCandidatesSpread(t *testing.T) {
	for _, tt := range []struct{ first, node string }{
		{"10.0.0.0", "node-%d"}, {"192.168.1.0", "ip-10-0-0-%d.eu-west-1.compute.internal"}, {"fd00:1::", "w%02d"},
	} {
		const addrs, size = 6000, 6
		var nodes []string
		for i := range size {
			nodes = append(nodes, fmt.Sprintf(tt.node, i+1))
		}
		first, next := make(map[string]int), make(map[string]int)
		addr := netip.MustParseAddr(tt.first)
		for range addrs {
			c := candidates(addr, nodes)
			first[c[0]]++
			if c[0] == nodes[0] {
				next[c[1]]++
			}
			addr = addr.Next()
		}
		even := func(label string, counts map[string]int, over []string, total int) {
			mean := float64(total) / float64(len(over))
			far := 4 * math.Sqrt(mean) // four standard deviations; the input is fixed
			for _, n := range over {
				if math.Abs(float64(counts[n])-mean) > far {
					t.Errorf("%s: %s has %d of %d, want %.0f ± %.0f", label, n, counts[n], total, mean, far)
				}
			}
		}
		even("first of "+tt.first, first, nodes, addrs)
		even("next of "+tt.first, next, nodes[1:], first[nodes[0]])
	}
}

func TestCampaigns(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	var nodes []string
	for i := range 13 {
		nodes = append(nodes, fmt.Sprintf("n%d", i+1))
	}
	order := candidates(addr, nodes)
	for _, tt := range []struct {
		name     string
		rank     int // of this node, from 1
		unfit    int // number of unfit nodes before it
		holds    bool
		newcomer bool
		want     bool
	}{
		{name: "the first", rank: 1, want: true},
		{name: "the third", rank: 3, want: true},
		{name: "the fourth", rank: 4},
		{name: "the fourth, with one unfit node before it", rank: 4, unfit: 1, want: true},
		{name: "the fifth, with one unfit node before it", rank: 5, unfit: 1},
		{name: "the last, and only fit one", rank: 13, unfit: 12, want: true},
		{name: "the holder, when other nodes join", rank: 13, holds: true, want: true},
		{name: "the holder, before it knows the others", rank: 13, holds: true, newcomer: true, unfit: 12, want: true},
		{name: "just started, with all the others", rank: 1, newcomer: true, want: true},
		{name: "just started, with one node missing", rank: 2, newcomer: true, unfit: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fit := make(map[string]bool)
			for _, n := range order[tt.unfit:] {
				fit[n] = true
			}
			delete(fit, order[tt.rank-1]) // it always counts itself
			c := rendezvous.Candidacy{Addr: addr, Self: order[tt.rank-1], Qualified: nodes, Fit: fit, Holds: tt.holds, MembersKnown: !tt.newcomer}
			if got := c.Campaigns(); got != tt.want {
				t.Errorf("campaigns: %v, want %v", got, tt.want)
			}
		})
	}
}

// Of the fit nodes, at least one and at most three campaign for each address.
func TestNumberOfCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
		n := rapid.IntRange(1, 40).Draw(t, "nodes")
		var nodes []string
		fit := make(map[string]bool)
		for i := range n {
			nodes = append(nodes, fmt.Sprint("n", i))
			if rapid.Bool().Draw(t, "fit") {
				fit[nodes[i]] = true
			}
		}
		preferred := make(map[string]int)
		for _, node := range nodes {
			if p := rapid.IntRange(-2, rendezvous.MostPreferred).Draw(t, "preference"); p > 0 {
				preferred[node] = p
			}
		}
		most := func(a, b string) bool { return preferred[a] >= preferred[b] }
		campaigning := 0
		for node := range fit {
			if (rendezvous.Candidacy{Addr: addr, Self: node, Qualified: nodes, Preferred: preferred, Fit: fit, MembersKnown: true}).Campaigns() {
				campaigning++
			} else if before := len(slices.DeleteFunc(slices.Collect(maps.Keys(fit)), func(n string) bool { return n == node || !most(n, node) })); before < 3 {
				t.Errorf("%s does not campaign, but only %d nodes have an equal or higher preference", node, before)
			}
		}
		if want := min(3, len(fit)); campaigning != want {
			t.Errorf("%d of %d campaign, want %d", campaigning, len(fit), want)
		}
	})
}

// A priority has 31 bits; the preference is in the upper ones.
func TestPriority(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	most := rendezvous.Priority(addr, "n1", rendezvous.MostPreferred)
	if most > math.MaxInt32 || most <= rendezvous.Priority(addr, "n2", rendezvous.MostPreferred-1) {
		t.Errorf("the most preferred node has the priority %d", most)
	}
	if got := rendezvous.Priority(addr, "n1", 0); got != rendezvous.Weight(addr, "n1") {
		t.Errorf("without a preference the priority is %d instead of the weight", got)
	}
}

// Among equal preferences only the last node has another priority.
func TestApart(t *testing.T) {
	first, last := rendezvous.PriorityApart(7, false), rendezvous.PriorityApart(7, true)
	if last >= first || last <= rendezvous.PriorityApart(6, false) || rendezvous.PriorityApart(rendezvous.MostPreferred, false) > math.MaxInt32 {
		t.Errorf("with a preference of 7 the priority is %d, and %d for the last node", first, last)
	}
}
