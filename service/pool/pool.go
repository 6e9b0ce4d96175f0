// Package pool assigns addresses from pools to claims: the Services of a cluster. It is pure: it has no clock,
// goroutine, network, log or randomness, and does not know Kubernetes. The caller states the claims and stores the
// answers of an [Allocator]. After a restart it hands them back ([Allocator.Adopt]).
//
// # Invariants
//
//  1. No address has two claims, unless they share it: they have the same
//     sharing key, the same policy and no port in common.
//  2. A claim is given addresses only from pools that it may use.
//  3. Dual-stack claims that are given the same address of one family are given
//     the same address of the other family too.
//  4. A claim is refused only if no choice of addresses would satisfy it. A
//     refusal takes away only addresses that belong to other claims.
//  5. The choice depends on the pools and on the addresses that are held now, not
//     on their history: a restart changes no decision.
//
// # Stability
//
// A claim keeps its addresses. Ranges, AutoAssign, priorities and selectors of pools govern new assignments only:
// editing a pool moves no Service. Addresses that no pool contains any more stay with their claims, even if these ask
// for a pool, and no other claim gets them. To move such a claim the caller releases it and assigns it anew.
// [Allocator.Assign] changes an address in three cases only. The claim asks for another address, or for a pool that
// does not contain it. Or other claims on the address rule out the claim's ports or sharing key.
//
// # Cost
//
// Free addresses are stored as ordered ranges, so the size of a pool does not matter. The steps of assigning and
// releasing grow with the logarithm of a pool's fragments, with the number of pools and with the ports of the claim.
// With a sharing key they also grow with the addresses given out for that key. They do not grow with the number of
// claims. Only Replace visits every claim.
package pool

import (
	"fmt"
	"net/netip"
	"strings"
)

// Pool is a set of addresses to assign.
type Pool struct {
	// Name is unique among the pools.
	Name string
	// Ranges may be of both families. Ranges of different pools must not overlap.
	Ranges []Range
	// AutoAssign lets claims use the pool that ask for neither the pool nor an address of it.
	AutoAssign bool
	// Priority orders the pools: highest first, equal priorities by name.
	Priority int
	// AvoidBuggyIPs excludes IPv4 addresses that end in .0 and .255: some devices
	// take them for a network and its broadcast address.
	AvoidBuggyIPs bool
}

// Family is an address family.
type Family int

// The families, usable as array indexes.
const (
	IPv4 Family = iota
	IPv6
)

// FamilyOf returns the family of a valid address.
func FamilyOf(addr netip.Addr) Family {
	if addr.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// String returns the family's name as in Kubernetes' API: IPv4 or IPv6.
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

// String returns the port in the form 443/TCP.
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Claim states the addresses that a Service wants, and the Services that it shares them with.
type Claim struct {
	// Key identifies the claim: namespace and name of a Service.
	Key string
	// Families are one or both, the more important first. The claim wants one address of each.
	Families []Family
	// Partial accepts an address of one family if the other is unavailable.
	Partial bool
	// Addresses are requested by value, at most one of each family. The claim gets
	// all of them or none, even if Partial.
	Addresses []netip.Addr
	// Pool is the name of the requested pool; empty means any pool with AutoAssign.
	Pool string
	// SelectedBy reports whether the selectors of a pool choose this claim; nil
	// means that all do. Only [Allocator.Assign] calls it.
	SelectedBy func(pool string) bool
	// Share is the sharing key. Claims with the same key get the same addresses where their ports and policies permit.
	// Empty means that the claim shares with no other. Keys span namespaces: a caller that wants otherwise adds the
	// namespace to the key.
	Share string
	// Policy decides which nodes accept the traffic of an address. It must be the same for all claims that share.
	Policy string
	// Ports are the ports that the claim uses on its addresses.
	Ports []Port
}

// mayUse reports whether a pool may serve the claim at all.
func (c *Claim) mayUse(p *space) bool {
	return p != nil && (c.Pool == "" || c.Pool == p.Name) && (c.SelectedBy == nil || c.SelectedBy(p.Name))
}

// draws reports whether a pool may serve the claim without being asked for an address.
func (c *Claim) draws(p *space) bool {
	return c.mayUse(p) && (p.AutoAssign || c.Pool != "")
}

// check returns a [Refusal] if the claim has no key or invalid families.
func (c *Claim) check() error {
	if c.Key == "" {
		return refuse(InvalidClaim, "the claim has no key: give it the namespace and name of its Service")
	}
	ok := len(c.Families) == 1 || len(c.Families) == 2 && c.Families[0] != c.Families[1]
	for _, f := range c.Families {
		ok = ok && (f == IPv4 || f == IPv6)
	}
	if !ok {
		return refuse(InvalidClaim, "%s names no valid address families: ask for IPv4, IPv6 or both", c.Key)
	}
	return nil
}

// pair holds at most one address of each family; the zero Addr means none.
type pair [2]netip.Addr

func (p pair) both() bool { return p[IPv4].IsValid() && p[IPv6].IsValid() }

// asked returns the addresses that the claim asks for by value.
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

// Reason is the reason of a refusal, one CamelCase word for conditions and events.
type Reason string

// The reasons.
const (
	// AddressConflict: an address belongs to a claim that it cannot be shared with.
	AddressConflict Reason = "AddressConflict"
	// PoolExhausted: the pools that serve the claim have no free address.
	PoolExhausted Reason = "PoolExhausted"
	// NoPool: no pool serves the claim, or the requested pool does not.
	NoPool Reason = "NoPool"
	// AddressNotInPool: a requested address is in no pool that the claim may use.
	AddressNotInPool Reason = "AddressNotInPool"
	// InvalidClaim: the claim is malformed or contradicts itself.
	InvalidClaim Reason = "InvalidClaim"
)

// Refusal is the error of an [Allocator] that assigns no address. Its message is
// the same for the same situation, so that callers can detect repetitions.
type Refusal struct {
	Reason Reason
	// Message is one sentence: the fault and its cure.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// enumerate lists names of pools in a phrase.
func enumerate(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	if len(quoted) == 1 {
		return "pool " + quoted[0]
	}
	last := len(quoted) - 1
	return "pools " + strings.Join(quoted[:last], ", ") + " and " + quoted[last]
}
