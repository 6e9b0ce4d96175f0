package rendezvous

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

const (
	// standing is how many nodes stand for an address: its holder, if it is one of them, and
	// two to follow it at once. Every candidate costs messages, whether it holds or not.
	standing = 3
	// weightBits keeps a weight within three bytes on the wire, and two nodes with the same
	// weight for an address a curiosity.
	weightBits = 20
)

// Weight is how much a node is preferred as the holder of addr, from 0 to 1<<20 - 1; of two with
// the same weight the first by name is. When a node goes, only what it was the first for
// has another first, and of those each of the others is the next for as many (rendezvous
// hashing: Thaler and Ravishankar, 1998). It
// depends on nothing else, and never changes with a version of Herald: nodes of
// different versions must agree. It is the upper 20 bits of SplitMix64's finalizer
// of the 64 bit FNV-1a hash of the node's name followed by the address's 4 or 16 bytes.
func Weight(addr netip.Addr, node string) int { return WeightOf(node, addr.Unmap().AsSlice()) }

// WeightOf is [Weight] for what has another key than an address.
func WeightOf(node string, key []byte) int {
	h := fnv.New64a()
	h.Write([]byte(node))
	h.Write(key)
	x := h.Sum64() // FNV leaves similar names with similar high bits
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return int(x >> (64 - weightBits))
}

// MostPreferred is the greatest preference that there is: with the weight in the lower bits it makes a priority of 31.
const MostPreferred = 1<<11 - 1

// Priority is that of a node as the holder of addr: of two, that of the one that is preferred is higher, and
// of those that are preferred alike, that of the one with the higher [Weight].
func Priority(addr netip.Addr, node string, preference int) int {
	return preference<<weightBits | Weight(addr, node)
}

// PriorityApart is the priority of a node as the holder of one of two addresses that different nodes are to hold: of nodes that are
// preferred alike the one that is the last to hold it, as it holds the other, comes after the rest, which are equal.
func PriorityApart(preference int, last bool) int {
	if last {
		return preference << weightBits
	}
	return preference<<weightBits | 1
}

// Candidacy is what decides whether a node stands for an address.
type Candidacy struct {
	Addr netip.Addr
	// Self is this node, which qualifies.
	Self string
	// Qualified are all nodes that may hold the address.
	Qualified []string
	// Preferred is how much nodes are preferred to those that are not in it, up to [MostPreferred].
	Preferred map[string]int
	// Fit says which of the others are alive and able to hold addresses.
	Fit map[string]bool
	// Holds is whether this node has the address now.
	Holds bool
	// Met is whether this node has had the time to hear of all that are alive.
	Met bool
}

// Stands reports whether this node stands for the address: as its holder, or as one of the
// first three candidates that are fit. A node that has just started waits for those
// that it has not heard of yet: otherwise the first node to boot would take everything.
func (c Candidacy) Stands() bool {
	if c.Holds {
		return true
	}
	if !c.Met && slices.ContainsFunc(c.Qualified, func(n string) bool { return n != c.Self && !c.Fit[n] }) {
		return false
	}
	mine, before := Priority(c.Addr, c.Self, c.Preferred[c.Self]), 0
	for _, n := range c.Qualified {
		if n == c.Self || !c.Fit[n] {
			continue
		}
		if p := Priority(c.Addr, n, c.Preferred[n]); p > mine || p == mine && n < c.Self {
			if before++; before == standing {
				return false
			}
		}
	}
	return true
}
