// Package pool gives addresses from pools to those that claim them: the Services
// of a cluster. It is pure: it has no clock, goroutine, network, log or
// randomness, and knows nothing of Kubernetes. The caller says what is claimed,
// writes down what an [Allocator] answers, and tells it after a restart what
// was written down ([Allocator.Adopt]).
//
// # What is always true
//
//  1. No address has two claims, unless these share it: they have the same
//     sharing key, the same policy and no port in common.
//  2. A claim is given addresses only from pools that it may use.
//  3. Claims that are given the same address of one family, and have one of the
//     other family too, are given the same of that as well.
//  4. A claim is refused only if no choice of addresses would satisfy it. A
//     refusal takes nothing away that is not somebody else's.
//  5. What is chosen depends on the pools and on who has which addresses now, and
//     not on how that came about: a restart changes no decision.
//
// # What stays
//
// Who has an address keeps it. Ranges, AutoAssign, priorities and selectors of
// pools decide who is given an address, never who loses one: an operator who
// edits a pool moves no Service. [Allocator.Replace] and [Allocator.Adopt]
// report the addresses that are in no pool now. They stay with their claims, for
// whatever pool these ask, and nobody else gets them; to move such a claim the
// caller releases it and assigns it anew. [Allocator.Assign] changes an address
// only if the claim asks for another one, for a pool other than the one that the
// address is in, or for ports or terms that other claims on the address rule out.
//
// # What it costs
//
// Free addresses are kept as ranges in order, so that the size of a pool does not
// matter. Assigning and releasing take a number of steps that grows with the
// logarithm of the fragments of a pool, the number of pools, the ports of the
// claim and, with a sharing key, the number of addresses that were given out for
// that key; not with the number of claims. Only Replace looks at every claim.
package pool

import (
	"fmt"
	"net/netip"
)

// Pool is a set of addresses to assign.
type Pool struct {
	// Name is unique among the pools.
	Name string
	// Ranges are of either family. Those of different pools must not overlap.
	Ranges []Range
	// AutoAssign: its addresses are assigned also to claims that ask for neither
	// the pool nor the address.
	AutoAssign bool
	// Priority decides which of several pools is used: the highest first, equal
	// ones in the order of their names.
	Priority int
	// AvoidBuggyIPs leaves out the IPv4 addresses that end in .0 and .255: some
	// devices take them for a network and its broadcast address.
	AvoidBuggyIPs bool
}

// Family is that of an address.
type Family int

// The families, which also index what is kept for each of them.
const (
	IPv4 Family = iota
	IPv6
)

// FamilyOf is the family of a valid address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// String is the name as Kubernetes writes it.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

func (f Family) other() Family { return 1 - f }

// Port is one port of one transport protocol.
type Port struct {
	Protocol string // such as TCP
	Number   uint16
}

// String is such as 443/TCP.
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Claim says which addresses somebody wants, and on what terms.
type Claim struct {
	// Key tells claims apart: the namespace and name of a Service.
	Key string
	// Families are one or both, the more important first. One address of each is
	// wanted.
	Families []Family
	// Partial: an address of one family will do if not both can be had.
	Partial bool
	// Addresses are asked for by value, at most one of each family. The claim is
	// given these or none, also if Partial.
	Addresses []netip.Addr
	// Pool is asked for by name. If empty, any pool with AutoAssign will do.
	Pool string
	// SelectedBy reports whether the selectors of a pool choose this claim; nil:
	// those of all do. It is called during [Allocator.Assign] only.
	SelectedBy func(pool string) bool
	// Share is the sharing key. Claims with the same key are given the same
	// addresses where their ports and policies permit. If empty, the claim shares
	// with nobody. A key has no owner: a caller that trusts its namespaces less
	// makes the namespace a part of it.
	Share string
	// Policy must be the same for all who share: what decides where the traffic
	// of an address is accepted.
	Policy string
	// Ports are what the claim uses of its addresses.
	Ports []Port
}

// mayUse reports whether a pool may serve the claim at all.
func (c *Claim) mayUse(p *space) bool {
	return p != nil && (c.Pool == "" || c.Pool == p.Name) && (c.SelectedBy == nil || c.SelectedBy(p.Name))
}

// draws reports whether a pool serves the claim of its own accord.
func (c *Claim) draws(p *space) bool {
	return c.mayUse(p) && (p.AutoAssign || c.Pool != "")
}

// check refuses what is no claim.
func (c *Claim) check() error {
	if c.Key == "" {
		return refuse(InvalidClaim, "the claim has no key: give it the namespace and name of its Service")
	}
	ok := len(c.Families) == 1 || len(c.Families) == 2 && c.Families[0] != c.Families[1]
	for _, f := range c.Families {
		ok = ok && (f == IPv4 || f == IPv6)
	}
	if !ok {
		return refuse(InvalidClaim, "%s names no families of addresses that there are: ask for IPv4, IPv6 or both", c.Key)
	}
	return nil
}

// pair is at most one address of each family; the zero Addr stands for none.
type pair [2]netip.Addr

func (p pair) both() bool { return p[IPv4].IsValid() && p[IPv6].IsValid() }

// asked are the addresses that the claim asks for by value.
func (c *Claim) asked() (pair, error) {
	var asked pair
	for _, addr := range c.Addresses {
		addr = addr.Unmap()
		if !addr.IsValid() || addr.Zone() != "" {
			return pair{}, refuse(InvalidClaim, "%s cannot be assigned: ask for an address without a zone", addr)
		}
		f := FamilyOf(addr)
		if c.Families[0] != f && c.Families[len(c.Families)-1] != f {
			return pair{}, refuse(InvalidClaim, "%s is an %s address, but %s wants %s: ask for an address of that family",
				addr, f, c.Key, c.Families[0])
		}
		if asked[f].IsValid() && asked[f] != addr {
			return pair{}, refuse(InvalidClaim, "%s and %s are both %s addresses: ask for one of each family", asked[f], addr, f)
		}
		asked[f] = addr
	}
	return asked, nil
}
