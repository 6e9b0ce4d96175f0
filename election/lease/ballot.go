package lease

import "github.com/herald-vip/herald/election/wire"

// maxJump limits how far a ballot may exceed all counters seen before, so that no message drives a counter to overflow.
const maxJump = 1 << 40

// ballot is the number of a candidate's attempt to get a lease. No two attempts share a number, not even across a
// restart ("Basic algorithm").
type ballot struct {
	counter uint64
	owner
}

// owner is a process that proposes: one incarnation of a member.
type owner struct {
	member      string
	incarnation uint64
}

// ID returns the short name of a lease on the wire. Among 1,000 leases, the probability that two share an ID is 1 in
// 10¹³.
func ID(name string) uint64 { return wire.Hash(name, 0) }
