package lease

import (
	"encoding/binary"
	"hash/fnv"
)

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
func ID(name string) uint64 { return hash(name, 0) }

// hash of a name and a number, equal on all members. All bits of it are good.
func hash(name string, number uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	h.Write(b[:])
	return mix(h.Sum64())
}

// mix spreads the low bits' differences over all bits (the finalizer of
// SplitMix64): FNV leaves similar names with similar high bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// identity stands for a member's process, as the receiver of a message.
func identity(name string, incarnation uint64) uint64 {
	return max(hash(name, incarnation), 1)
}
