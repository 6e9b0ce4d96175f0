package balancer

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
)

// Buckets is the number of buckets for new connections. Each belongs to one backend, so shares are even to 1/1024, and a
// change of backends moves as few buckets as possible.
const Buckets = 1024

// stride visits all buckets, and after any number of steps the visited ones are spread evenly. It is Buckets divided by the
// golden ratio, rounded to an odd number.
const stride = 633

// Assign returns the backend of each bucket, or nil without a serving backend. It makes the fewest changes to before, its last
// result or nil, so that the shares of serving backends differ by at most one bucket. The caller chooses the keys of
// backends. The result depends only on the arguments. Nodes with different seeds start with different backends.
func Assign(before, serving []string, seed string) []string {
	if len(serving) == 0 {
		return nil
	}
	table := make([]string, Buckets)
	if len(before) == Buckets {
		copy(table, before)
	}
	owned := make(map[string]int)
	for _, owner := range table {
		owned[owner]++
	}

	// The remainder of the division goes to the backends with most buckets, because that moves least.
	rank := make(map[string]string) // orders backends differently for each seed
	for _, backend := range serving {
		sum := sha256.Sum256([]byte(seed + "\x00" + backend))
		rank[backend] = string(sum[:])
	}
	order := slices.SortedFunc(maps.Keys(rank), func(x, y string) int {
		return cmp.Or(cmp.Compare(owned[y], owned[x]), cmp.Compare(rank[x], rank[y]))
	})
	wanted := make(map[string]int)
	for i, backend := range order {
		wanted[backend] = Buckets / len(order)
		if i < Buckets%len(order) {
			wanted[backend]++
		}
	}

	// Buckets above the share are taken at a stride, so that the others stay mixed.
	for i := range Buckets {
		b := i * stride % Buckets
		if owner := table[b]; owned[owner] > wanted[owner] {
			owned[owner]--
			table[b] = ""
		}
	}
	// Free buckets go to the neediest in turn, so that neighbours differ, which round-robin needs.
	for b, owner := range table {
		if owner != "" {
			continue
		}
		neediest := slices.MaxFunc(order, func(x, y string) int {
			return cmp.Compare(wanted[x]-owned[x], wanted[y]-owned[y])
		})
		table[b] = neediest
		owned[neediest]++
	}
	return table
}
