package balancer_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/balancer"
)

// servers draws a set of backends, in any order.
func servers(t *rapid.T, label string) []string {
	ids := rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 1, 20, rapid.ID[int]).Draw(t, label)
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("m%d", id)
	}
	return names
}

func tally(table []string) map[string]int {
	owned := make(map[string]int)
	for _, owner := range table {
		owned[owner]++
	}
	return owned
}

// TestAssign changes the serving backends of a table.
func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "seed")
		var table []string
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			serving := servers(t, "serving")
			before := table
			table = balancer.Assign(before, serving, seed)
			checkEven(t, table, serving)
			checkMoves(t, before, table, serving)

			slices.Reverse(serving)
			if !slices.Equal(table, balancer.Assign(before, serving, seed)) {
				t.Fatalf("the table depends on the order of backends")
			}
			if !slices.Equal(table, balancer.Assign(table, serving, seed)) {
				t.Fatalf("buckets move without a change")
			}
		}
	})
}

func checkEven(t *rapid.T, table, serving []string) {
	t.Helper()
	if len(table) != balancer.Buckets {
		t.Fatalf("%d buckets, want %d", len(table), balancer.Buckets)
	}
	owned := tally(table)
	low := balancer.Buckets / len(serving)
	for _, s := range serving {
		if owned[s] < low || owned[s] > low+1 {
			t.Fatalf("%s of %v has %d buckets, want %d or one more", s, serving, owned[s], low)
		}
		delete(owned, s)
	}
	if len(owned) > 0 {
		t.Fatalf("buckets of backends that do not serve: %v", owned)
	}
}

// checkMoves counts the buckets that had to move: all buckets of gone backends, and the buckets of others above their share.
func checkMoves(t *rapid.T, before, after, serving []string) {
	t.Helper()
	if before == nil {
		return
	}
	moved := 0
	for b := range before {
		if before[b] != after[b] {
			moved++
		}
	}
	low, extra := balancer.Buckets/len(serving), balancer.Buckets%len(serving)
	must := 0
	for owner, n := range tally(before) {
		switch {
		case !slices.Contains(serving, owner):
			must += n
		case n > low && extra > 0:
			extra--
			must += n - low - 1
		case n > low:
			must += n - low
		}
	}
	if moved != must {
		t.Fatalf("%d buckets moved, %d had to", moved, must)
	}
}

// TestAssignMixes checks that any stretch of a table is about as even as the whole, also after changes: round-robin goes
// from bucket to bucket.
func TestAssignMixes(t *testing.T) {
	var table []string
	for _, serving := range [][]string{{"a", "b", "c"}, {"a", "c"}, {"a", "b", "c"}, {"a", "b", "c", "d"}, {"b", "c", "d"}} {
		table = balancer.Assign(table, serving, "node")
		const stretch = 60
		for from := 0; from+stretch <= balancer.Buckets; from++ {
			for backend, n := range tally(table[from : from+stretch]) {
				if fair := stretch / len(serving); n < fair-8 || n > fair+8 {
					t.Fatalf("%v: buckets %d to %d: %s has %d of them, about %d would be fair", serving, from, from+stretch, backend, n, fair)
				}
			}
		}
	}
}

func TestAssignSeeds(t *testing.T) {
	serving := []string{"m1", "m2", "m3"}
	first := make(map[string]int)
	for i := range 60 {
		first[balancer.Assign(nil, serving, fmt.Sprintf("worker-%d", i))[0]]++
	}
	for _, s := range serving {
		if first[s] < 10 {
			t.Errorf("%s is first on %d of 60 nodes (%v)", s, first[s], first)
		}
	}
}

func TestAssignNoBackends(t *testing.T) {
	if table := balancer.Assign(nil, nil, "node"); table != nil {
		t.Errorf("a table of %d buckets without a serving backend", len(table))
	}
	if table := balancer.Assign([]string{"a"}, []string{"b"}, "node"); len(table) != balancer.Buckets || table[0] != "b" {
		t.Errorf("an invalid table was used")
	}
}

func BenchmarkAssign(b *testing.B) {
	before := balancer.Assign(nil, []string{"m1", "m2", "m3"}, "node")
	for b.Loop() {
		balancer.Assign(before, []string{"m1", "m3"}, "node")
	}
}
