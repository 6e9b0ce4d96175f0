package pool

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"github.com/google/btree"
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
	s := &space{Pool: p, capacity: [2]*big.Int{new(big.Int), new(big.Int)}}
	s.free = &free{avoid: p.AvoidBuggyIPs, ranges: btree.NewG(degree, func(a, b Range) bool {
		*steps++
		return a.First.Less(b.First)
	})}
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

// degree of the trees: nodes of up to 31 entries.
const degree = 16

// free is the free addresses of a pool, in as few ranges as possible.
type free struct {
	// avoid excludes buggy addresses. No range begins or ends with one; inside a range they are skipped.
	avoid  bool
	ranges *btree.BTreeG[Range] // by first address, without overlaps
}

// add adds a range, which must not overlap the others.
func (f *free) add(r Range) {
	if f.skip(r.First) {
		r.First = f.after(r.First)
	}
	if f.skip(r.Last) {
		r.Last = f.before(r.Last)
	}
	if r.First.IsValid() && r.Last.IsValid() && !r.Last.Less(r.First) {
		f.ranges.ReplaceOrInsert(r)
	}
}

// lowest returns the lowest free address of the family.
func (f *free) lowest(family Family) (netip.Addr, bool) {
	from := netip.Addr{} // sorts before all addresses
	if family == IPv6 {
		from = netip.IPv6Unspecified() // sorts after all of IPv4
	}
	r, ok := f.ceiling(from)
	return r.First, ok && r.family() == family
}

// take removes a free address.
func (f *free) take(addr netip.Addr) {
	r, _ := f.floor(addr)
	f.ranges.Delete(r)
	if r.First != addr {
		f.ranges.ReplaceOrInsert(Range{r.First, f.before(addr)})
	}
	if r.Last != addr {
		f.ranges.ReplaceOrInsert(Range{f.after(addr), r.Last})
	}
}

// give returns a taken address.
func (f *free) give(addr netip.Addr) {
	whole := Range{addr, addr}
	if r, ok := f.floor(addr); ok && r.Last == f.before(addr) {
		f.ranges.Delete(r)
		whole.First = r.First
	}
	if r, ok := f.ceiling(addr); ok && r.First == f.after(addr) {
		f.ranges.Delete(r)
		whole.Last = r.Last
	}
	f.ranges.ReplaceOrInsert(whole)
}

// floor returns the last range that begins at or before addr.
func (f *free) floor(addr netip.Addr) (found Range, ok bool) {
	f.ranges.DescendLessOrEqual(Range{First: addr}, func(r Range) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// ceiling returns the first range that begins at or after addr.
func (f *free) ceiling(addr netip.Addr) (found Range, ok bool) {
	f.ranges.AscendGreaterOrEqual(Range{First: addr}, func(r Range) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// after returns the next usable address; the zero Addr after the last.
func (f *free) after(addr netip.Addr) netip.Addr {
	for addr = addr.Next(); f.skip(addr); addr = addr.Next() {
	}
	return addr
}

// before returns the previous usable address; the zero Addr before the first.
func (f *free) before(addr netip.Addr) netip.Addr {
	for addr = addr.Prev(); f.skip(addr); addr = addr.Prev() {
	}
	return addr
}

func (f *free) skip(addr netip.Addr) bool { return f.avoid && buggy(addr) }
