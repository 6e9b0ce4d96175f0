// Package rendezvous orders nodes as holders of addresses by rendezvous hashing, without communication.
//
// Members of different versions must compute the same order. So [Weight], [WeightOf], [Priority] and [PriorityApart] must
// never change: another hash, another order of its input or other bits would move addresses during an upgrade. The rule in
// [Candidacy.Campaigns] may change, such as the number of candidates, as long as the fit node with the highest priority
// campaigns.
package rendezvous

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

const (
	// campaigning is the number of candidates of an address: one to hold it and two to take
	// over at once. Every candidate costs messages, even if it does not hold the address.
	campaigning = 3
	// weightBits keeps a weight within three bytes on the wire and makes equal weights of two nodes rare.
	weightBits = 20
)

// Weight returns the weight of a node as the holder of addr, from 0 to 1<<20 - 1. The largest weight is preferred;
// among equals, the first name. Removing a node moves only its own addresses, spread evenly over the rest (rendezvous
// hashing: Thaler and Ravishankar, 1998). The weight is the upper 20 bits of SplitMix64's finalizer of the 64-bit
// FNV-1a hash of the node's name followed by the address's 4 or 16 bytes. It must never change: nodes of different
// versions must agree.
func Weight(addr netip.Addr, node string) int { return WeightOf(node, addr.Unmap().AsSlice()) }

// WeightOf is [Weight] for keys other than addresses.
func WeightOf(node string, key []byte) int {
	h := fnv.New64a()
	h.Write([]byte(node))
	h.Write(key)
	x := h.Sum64() // FNV gives similar names similar high bits
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return int(x >> (64 - weightBits))
}

// MostPreferred is the greatest preference. With the weight in the lower bits, a priority has 31 bits.
const MostPreferred = 1<<11 - 1

// Priority returns the priority of a node as the holder of addr: the preference decides, and among equal preferences
// the [Weight].
func Priority(addr netip.Addr, node string, preference int) int {
	return preference<<weightBits | Weight(addr, node)
}

// PriorityApart returns the priority of a node for one of two addresses that different nodes should hold. Among nodes of
// equal preference, last puts the holder of the other address behind the rest, which are equal.
func PriorityApart(preference int, last bool) int {
	if last {
		return preference << weightBits
	}
	return preference<<weightBits | 1
}

// Candidacy is the input of the decision whether a node campaigns for an address.
type Candidacy struct {
	Addr netip.Addr
	// Self is the name of this node, which is qualified.
	Self string
	// Qualified are the names of all nodes that may hold the address.
	Qualified []string
	// Preferred maps nodes to their preference, up to [MostPreferred]; absent means 0.
	Preferred map[string]int
	// Fit marks the other nodes that are alive and able to hold addresses.
	Fit map[string]bool
	// Holds reports whether this node holds the address now.
	Holds bool
	// MembersKnown reports whether this node has had time to discover all living members.
	MembersKnown bool
}

// Campaigns reports whether this node campaigns for the address: as its holder, or as one of
// the first three fit candidates. A node that has just started waits until it has discovered
// the other nodes: otherwise the first node to boot would take all addresses.
func (c Candidacy) Campaigns() bool {
	if c.Holds {
		return true
	}
	if !c.MembersKnown && slices.ContainsFunc(c.Qualified, func(n string) bool { return n != c.Self && !c.Fit[n] }) {
		return false
	}
	mine, before := Priority(c.Addr, c.Self, c.Preferred[c.Self]), 0
	for _, n := range c.Qualified {
		if n == c.Self || !c.Fit[n] {
			continue
		}
		if p := Priority(c.Addr, n, c.Preferred[n]); p > mine || p == mine && n < c.Self {
			if before++; before == campaigning {
				return false
			}
		}
	}
	return true
}
