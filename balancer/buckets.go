package balancer

import (
	"cmp"
	"crypto/sha256"
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
	wanted := shares(table, serving, seed)

	// What is too much is given up here and there, so that the rest stays mixed as well.
	owned := count(table)
	for i := range Buckets {
		b := i * stride % Buckets
		if owner := table[b]; owned[owner] > wanted.of(owner) {
			owned[owner]--
			table[b] = ""
		}
	}
	// Turn by turn: neighbours are different backends, as round-robin wants them.
	for b, owner := range table {
		if owner != "" {
			continue
		}
		neediest := slices.MaxFunc(wanted, func(x, y share) int {
			return cmp.Compare(x.buckets-owned[x.backend], y.buckets-owned[y.backend])
		})
		table[b] = neediest.backend
		owned[neediest.backend]++
	}
	return table
}

// share is how many buckets a backend shall have.
type share struct {
	backend string
	buckets int
	rank    string // orders backends differently for each seed
}

type sharing []share

func (s sharing) of(backend string) int {
	for _, x := range s {
		if x.backend == backend {
			return x.buckets
		}
	}
	return 0
}

// shares divides the buckets. What does not divide evenly goes to those that have most
// already, because that moves least.
func shares(table, serving []string, seed string) sharing {
	all := make(sharing, 0, len(serving))
	for _, backend := range serving {
		rank := sha256.Sum256([]byte(seed + "\x00" + backend))
		all = append(all, share{backend: backend, rank: string(rank[:])})
	}
	owned := count(table)
	slices.SortFunc(all, func(x, y share) int {
		return cmp.Or(cmp.Compare(owned[y.backend], owned[x.backend]), cmp.Compare(x.rank, y.rank))
	})
	all = slices.CompactFunc(all, func(x, y share) bool { return x.backend == y.backend })
	for i := range all {
		all[i].buckets = Buckets / len(all)
		if i < Buckets%len(all) {
			all[i].buckets++
		}
	}
	return all
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
