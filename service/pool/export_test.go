package pool

// Steps counts the comparisons and candidates so far.
func (a *Allocator) Steps() int { return a.steps }

// Fragments counts the ranges of free addresses in a pool.
func (a *Allocator) Fragments(pool string) int { return a.pools.byName[pool].free.ranges.Len() }
