package pool

import (
	"net/netip"

	"github.com/google/btree"
)

// degree of the trees: nodes of up to 31 entries.
const degree = 16

// free is the free addresses of a pool, as few ranges as can be.
type free struct {
	// avoid leaves out buggy addresses. No range begins or ends with one; in the
	// middle of a range they are passed over.
	avoid  bool
	ranges *btree.BTreeG[Range] // by their first address; they do not overlap
}

// newFree counts the comparisons that it takes in steps.
func newFree(avoid bool, steps *int) *free {
	return &free{avoid: avoid, ranges: btree.NewG(degree, func(a, b Range) bool {
		*steps++
		return a.First.Less(b.First)
	})}
}

// add is for ranges that do not overlap.
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

// lowest is the lowest free address of the family.
func (f *free) lowest(of Family) (netip.Addr, bool) {
	from := netip.Addr{} // before all there are
	if of == IPv6 {
		from = netip.IPv6Unspecified() // behind all of IPv4
	}
	r, ok := f.ceiling(from)
	return r.First, ok && r.family() == of
}

// take makes a free address one that is not.
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

// give takes back what was taken.
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

// floor is the last range that does not begin behind addr.
func (f *free) floor(addr netip.Addr) (found Range, ok bool) {
	f.ranges.DescendLessOrEqual(Range{First: addr}, func(r Range) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// ceiling is the first range that does not begin before addr.
func (f *free) ceiling(addr netip.Addr) (found Range, ok bool) {
	f.ranges.AscendGreaterOrEqual(Range{First: addr}, func(r Range) bool {
		found, ok = r, true
		return false
	})
	return found, ok
}

// after is the next address that may be used, the zero Addr behind the last.
func (f *free) after(addr netip.Addr) netip.Addr {
	for addr = addr.Next(); f.skip(addr); addr = addr.Next() {
	}
	return addr
}

// before is the address before that may be used, the zero Addr before the first.
func (f *free) before(addr netip.Addr) netip.Addr {
	for addr = addr.Prev(); f.skip(addr); addr = addr.Prev() {
	}
	return addr
}

func (f *free) skip(addr netip.Addr) bool { return f.avoid && buggy(addr) }
