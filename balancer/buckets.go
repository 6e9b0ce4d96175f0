package balancer

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
)

// Buckets is how many buckets new connections fall into. Each belongs to one backend, so
// shares are even to 1/1024, and a change of backends moves whole buckets and no others.
const Buckets = 1024

// stride visits all buckets, and after any number of steps those it has visited lie evenly
// spread: Buckets divided by the golden ratio, and odd.
const stride = 633

// Assign returns the backend of each bucket: the table of before with as few changes as
// make all serving backends' shares differ by one bucket at most. Backends are known by keys
// of the caller's choice. Before is what Assign returned last, or nil. The result depends on
// nothing but the arguments; nodes with different seeds begin with different backends, so
// that they do not herd. Nobody serving is nil.
func Assign(before, serving []string, seed string) []string {
	if len(serving) == 0 {
		return nil
	}
	table := make([]string, Buckets)
	if len(before) == Buckets {
		copy(table, before)
	}
	owned := count(table)

	// What does not divide evenly goes to those that have most already, because that moves least.
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

	// What is too much is given up here and there, so that the rest stays mixed as well.
	for i := range Buckets {
		b := i * stride % Buckets
		if owner := table[b]; owned[owner] > wanted[owner] {
			owned[owner]--
			table[b] = ""
		}
	}
	// Turn by turn: neighbours are different backends, as round-robin wants them.
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

func count(table []string) map[string]int {
	owned := make(map[string]int)
	for _, owner := range table {
		if owner != "" {
			owned[owner]++
		}
	}
	return owned
}
