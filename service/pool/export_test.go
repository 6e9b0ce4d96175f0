package pool

// Steps is how many comparisons and candidates it took so far.
func (a *Allocator) Steps() int { return a.steps }

// Fragments is how many ranges the free addresses of a pool are.
func (a *Allocator) Fragments(pool string) int { return a.pools.byName[pool].free.ranges.Len() }
