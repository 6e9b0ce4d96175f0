package lease

import "github.com/herald-vip/herald/election/wire"

// maxJump is how far above all counters seen before a ballot may be: no message
// drives the counters to where they overflow.
const maxJump = 1 << 40

// ballot is the number of a candidate's attempt to get a lease. No two attempts
// have the same one, not even across a restart ("Basic algorithm").
type ballot struct {
	counter uint64
	owner
}

// owner is a process that bids: a member, until it is started anew.
type owner struct {
	member      string
	incarnation uint64
}

// ID is the short name of a lease on the wire. Of 1,000 leases two have the same
// one in a case of 10¹³.
func ID(name string) uint64 { return wire.Hash(name, 0) }
