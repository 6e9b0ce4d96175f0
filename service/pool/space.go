package pool

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
)

// OverlapError reports that two pools have an address in common.
type OverlapError struct {
	// Pools are the names, sorted.
	Pools [2]string
	// Ranges are the overlapping ranges, one of each pool.
	Ranges [2]Range
}

// Error names the pools and ranges.
func (e *OverlapError) Error() string {
	return fmt.Sprintf("pool %q (%s) and pool %q (%s) overlap: remove the common addresses from one of them",
		e.Pools[0], e.Ranges[0], e.Pools[1], e.Ranges[1])
}

// Overlaps returns each pair of pools with common addresses once, in the order of
// the addresses. The ranges must be valid.
func Overlaps(pools []Pool) []*OverlapError {
	type named struct {
		Range
		pool string
	}
	var all []named
	for _, p := range pools {
		for _, r := range p.Ranges {
			all = append(all, named{r, p.Name})
		}
	}
	slices.SortFunc(all, func(a, b named) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.pool, b.pool), a.Last.Compare(b.Last))
	})
	var found []*OverlapError
	seen := make(map[[2]string]bool)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if !a.Contains(b.First) {
				break // later ranges begin even further on
			}
			e := &OverlapError{Pools: [2]string{a.pool, b.pool}, Ranges: [2]Range{a.Range, b.Range}}
			if b.pool < a.pool {
				e = &OverlapError{Pools: [2]string{b.pool, a.pool}, Ranges: [2]Range{b.Range, a.Range}}
			}
			if a.pool != b.pool && !seen[e.Pools] {
				seen[e.Pools] = true
				found = append(found, e)
			}
		}
	}
	return found
}

// space is a pool and its usage.
type space struct {
	Pool
	free     *free
	capacity [2]*big.Int // by Family, like used
	used     [2]int64
}

func newSpace(p Pool, steps *int) *space {
	s := &space{Pool: p, free: newFree(p.AvoidBuggyIPs, steps), capacity: [2]*big.Int{new(big.Int), new(big.Int)}}
	for _, r := range merge(p.Ranges) {
		capacity := s.capacity[r.family()]
		capacity.Add(capacity, r.size())
		if p.AvoidBuggyIPs {
			capacity.Sub(capacity, big.NewInt(r.buggies()))
		}
		s.free.add(r)
	}
	return s
}

// layout is a set of pools that do not overlap.
type layout struct {
	byName     map[string]*space
	byPriority []*space
}

// newLayout returns an error for duplicate names, invalid ranges and overlaps.
func newLayout(pools []Pool, steps *int) (*layout, error) {
	l := &layout{byName: make(map[string]*space)}
	for _, p := range pools {
		if l.byName[p.Name] != nil {
			return nil, fmt.Errorf("two pools are called %q: rename one of them", p.Name)
		}
		for _, r := range p.Ranges {
			if err := r.check(); err != nil {
				return nil, fmt.Errorf("pool %q: %s: %w", p.Name, r, err)
			}
		}
		p.Ranges = slices.Clone(p.Ranges)
		s := newSpace(p, steps)
		l.byName[p.Name] = s
		l.byPriority = append(l.byPriority, s)
	}
	if overlaps := Overlaps(pools); len(overlaps) > 0 {
		return nil, overlaps[0]
	}
	slices.SortFunc(l.byPriority, func(a, b *space) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
	return l, nil
}

// around returns the pool with addr in its ranges, even if the pool avoids addr; nil if there is none.
func (l *layout) around(addr netip.Addr) *space {
	for _, s := range l.byPriority {
		if slices.ContainsFunc(s.Ranges, func(r Range) bool { return r.Contains(addr) }) {
			return s
		}
	}
	return nil
}

// containing returns the pool that addr belongs to; nil if there is none.
func (l *layout) containing(addr netip.Addr) *space {
	s := l.around(addr)
	if s == nil || s.free.skip(addr) {
		return nil
	}
	return s
}
