package pool

// Steps is how many comparisons and candidates it took so far.
func (a *Allocator) Steps() int { return a.steps }
