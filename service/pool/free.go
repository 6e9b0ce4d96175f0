package pool

import (
	"net/netip"

	"github.com/google/btree"
)

// degree of the trees: nodes of up to 31 entries.
const degree = 16

// free is the free addresses of a pool, in as few ranges as possible.
type free struct {
	// avoid excludes buggy addresses. No range begins or ends with one; inside a
	// range they are skipped.
	avoid  bool
	ranges *btree.BTreeG[Range] // by first address, without overlaps
}

// newFree returns an empty set that adds its comparisons to steps.
func newFree(avoid bool, steps *int) *free {
	return &free{avoid: avoid, ranges: btree.NewG(degree, func(a, b Range) bool {
		*steps++
		return a.First.Less(b.First)
	})}
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
