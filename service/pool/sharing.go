package pool

import (
	"net/netip"
	"slices"

	"github.com/google/btree"
)

// terms are what all who share an address agree upon.
type terms struct{ share, policy string }

// slot is an address that is in use.
type slot struct {
	addr    netip.Addr
	pool    *space // nil: it is in none now
	terms   terms
	holders map[string]bool // by key

	// What follows is of an address that may be shared, and else nil.

	common *commons
	ports  map[Port]string // that are in use, and whose they are
	// partners are the addresses of the other family that its holders have, and
	// how many have each. There is one at most unless more were adopted.
	partners map[netip.Addr]int
}

// admits refuses a claim that cannot have the address beside those who have it.
// A nil slot is a free address.
func (s *slot) admits(c *Claim) error {
	if s == nil {
		return nil
	}
	switch {
	case s.terms.share == "":
		for holder := range s.holders { // the only one
			return refuse(AddressConflict, "%s belongs to %s: ask for another address, or give both the same sharing key", s.addr, holder)
		}
	case s.terms.share != c.Share:
		return refuse(AddressConflict, "%s is shared by the key %q: ask for another address, or use that key", s.addr, s.terms.share)
	case s.terms.policy != c.Policy:
		return refuse(AddressConflict, "%s is shared by the key %q with another policy for its traffic: ask for another address, or use the same policy",
			s.addr, s.terms.share)
	}
	if port, taken := s.taken(c); taken {
		return refuse(AddressConflict, "port %s of %s belongs to %s: use another port, or ask for another address", port, s.addr, s.ports[port])
	}
	return nil
}

// taken is the first port of the claim that others use on a shared address.
func (s *slot) taken(c *Claim) (Port, bool) {
	for _, p := range c.Ports {
		if _, taken := s.ports[p]; taken {
			return p, true
		}
	}
	return Port{}, false
}

// partner is the address that goes with s for a Service that has both families, if
// there is just one.
func (s *slot) partner() (addr netip.Addr, only bool) {
	for addr = range s.partners {
	}
	return addr, len(s.partners) == 1
}

// commons is the slots of one family and the same terms.
type commons struct {
	slots *btree.BTreeG[*slot] // by address
	users map[Port]int         // how many slots have a port in use
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

// full reports that a port of the claim is in use on every slot. It spares those
// who all use one key and one port a look at all their addresses.
func (c *commons) full(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return c.users[p] == c.slots.Len() })
}
