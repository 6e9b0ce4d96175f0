package pool

import (
	"net/netip"
	"slices"

	"github.com/google/btree"
)

// sharingKey is equal for all claims that share an address. An empty key means that the address is not shared.
type sharingKey struct{ key, policy string }

// slot is an address in use.
type slot struct {
	addr    netip.Addr
	pool    *space // nil: no pool contains it now
	share   sharingKey
	holders map[string]bool // by the key of the claim

	// The following fields are nil unless the address may be shared.

	common *commons
	ports  map[Port]string // ports in use, and the key of the claim that uses each
	// partners counts, per address of the other family, the holders that have both.
	// There is at most one partner, unless more were adopted.
	partners map[netip.Addr]int
}

// admits returns a [Refusal] if the claim cannot share the address with its
// holders. A nil slot is a free address.
func (s *slot) admits(c *Claim) error {
	if s == nil {
		return nil
	}
	switch {
	case s.share.key == "":
		for holder := range s.holders { // the only one
			return refuse(AddressConflict, "%s belongs to %s: ask for another address, or give both the same sharing key", s.addr, holder)
		}
	case s.share.key != c.Share:
		return refuse(AddressConflict, "%s is shared by the key %q: ask for another address, or use that key", s.addr, s.share.key)
	case s.share.policy != c.Policy:
		return refuse(AddressConflict, "%s is shared by the key %q with another policy for its traffic: ask for another address, or use the same policy",
			s.addr, s.share.key)
	}
	if port, taken := s.taken(c); taken {
		return refuse(AddressConflict, "port %s of %s belongs to %s: use another port, or ask for another address", port, s.addr, s.ports[port])
	}
	return nil
}

// taken returns the first port of the claim that another claim uses on a shared address.
func (s *slot) taken(c *Claim) (Port, bool) {
	for _, p := range c.Ports {
		if _, taken := s.ports[p]; taken {
			return p, true
		}
	}
	return Port{}, false
}

// partner returns the second address of dual-stack holders of s. only reports
// whether there is exactly one.
func (s *slot) partner() (addr netip.Addr, only bool) {
	for addr = range s.partners {
	}
	return addr, len(s.partners) == 1
}

// commons is the slots of one family with the same sharing key.
type commons struct {
	slots *btree.BTreeG[*slot] // by address
	users map[Port]int         // number of slots with the port in use
}

func newCommons(steps *int) *commons {
	return &commons{
		slots: btree.NewG(degree, func(a, b *slot) bool {
			*steps++
			return a.addr.Less(b.addr)
		}),
		users: make(map[Port]int),
	}
}

// full reports whether a port of the claim is in use on every slot. It spares
// claims with one key and one port a scan of all their addresses.
func (c *commons) full(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return c.users[p] == c.slots.Len() })
}
