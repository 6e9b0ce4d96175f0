package pool

import (
	"cmp"
	"net/netip"
)

// choose returns the addresses that a claim gets. The claim holds none now; kept
// are its previous addresses that it may have again.
func (a *Allocator) choose(c *Claim, kept pair) (pair, error) {
	asked, err := a.grant(c, kept)
	if err != nil {
		return pair{}, err
	}
	settled := asked
	for f, addr := range kept {
		p := a.pools.containing(addr) // nil: the pool was changed, not the claim
		if !asked[f].IsValid() && addr.IsValid() && (c.Pool == "" || p == nil || p.Name == c.Pool) {
			settled[f] = addr
		}
	}
	if settled != kept && !a.together(settled) {
		settled = asked // its previous addresses cannot be paired with the requested ones
	}
	chosen, err := a.complete(c, settled)
	if err == nil || settled == asked {
		return chosen, err
	}
	// Without its previous addresses there may be room for both families.
	if moved, err := a.complete(c, asked); err == nil {
		return moved, nil
	}
	return pair{}, err
}

// grant returns the addresses that the claim asks for by value, or a [Refusal].
func (a *Allocator) grant(c *Claim, kept pair) (pair, error) {
	asked, err := c.asked()
	if err != nil {
		return pair{}, err
	}
	for f, addr := range asked {
		if !addr.IsValid() || addr == kept[f] {
			continue
		}
		p := a.pools.around(addr)
		switch {
		case p == nil:
			return pair{}, refuse(AddressNotInPool, "%s is in no ready pool: ask for an address of a ready pool, or add this one to a pool", addr)
		case c.Pool != "" && c.Pool != p.Name:
			return pair{}, refuse(AddressNotInPool, "%s is in pool %q, not in pool %q: ask for only one of address and pool", addr, p.Name, c.Pool)
		case p.free.skip(addr):
			return pair{}, refuse(AddressNotInPool, "%s ends in .0 or .255, which pool %q avoids: ask for another address", addr, p.Name)
		case !c.mayUse(p):
			return pair{}, refuse(AddressNotInPool, "%s is in pool %q, which does not select %s: ask for an address of another pool",
				addr, p.Name, c.Key)
		}
		if err := a.slots[addr].admits(c); err != nil {
			return pair{}, err
		}
	}
	if asked != kept && !a.together(asked) {
		return pair{}, refuse(AddressConflict, "%s and %s cannot be assigned together: Services that share one of them have a different second address",
			asked[IPv4], asked[IPv6])
	}
	return asked, nil
}

// together reports whether a claim may have both addresses of a pair.
func (a *Allocator) together(p pair) bool {
	return !p.both() || a.goes(p[IPv4], p[IPv6]) && a.goes(p[IPv6], p[IPv4])
}

// goes reports whether partner is the second address of every claim that holds addr and an address of the other family.
func (a *Allocator) goes(addr, partner netip.Addr) bool {
	s := a.slots[addr]
	if s == nil || len(s.partners) == 0 {
		return true
	}
	addr, only := s.partner()
	return only && addr == partner
}

// complete adds the addresses that the claim still lacks to the settled ones.
func (a *Allocator) complete(c *Claim, settled pair) (pair, error) {
	chosen, err := a.fill(c, settled, c.Families)
	if err == nil || !c.Partial {
		return chosen, err
	}
	if settled != (pair{}) {
		return settled, nil
	}
	for _, f := range c.Families {
		if single, err := a.fill(c, settled, []Family{f}); err == nil {
			return single, nil
		}
	}
	return pair{}, err
}

// fill finds an address for each family that has none yet.
func (a *Allocator) fill(c *Claim, chosen pair, families []Family) (pair, error) {
	for _, f := range families {
		if chosen[f].IsValid() {
			continue
		}
		addr, err := a.find(c, f, chosen[f.other()], len(families) > 1)
		if err != nil {
			return pair{}, err
		}
		chosen[f] = addr
	}
	return chosen, nil
}

// find finds an address of one family. beside is the claim's address of the other
// family, if chosen already. A shared address takes precedence over a free one.
func (a *Allocator) find(c *Claim, f Family, beside netip.Addr, both bool) (netip.Addr, error) {
	if s := a.slots[beside]; s != nil && len(s.partners) > 0 {
		return a.follow(c, s)
	}
	if s := a.join(c, f, both, beside.IsValid()); s != nil {
		return s.addr, nil
	}
	return a.lowest(c, f)
}

// follow returns the partner of an address that the claim shares.
func (a *Allocator) follow(c *Claim, s *slot) (netip.Addr, error) {
	partner, only := s.partner()
	if !only || !a.goes(partner, s.addr) {
		return netip.Addr{}, refuse(AddressConflict, "Services that share %s have different second addresses: ask for another address, or use another sharing key", s.addr)
	}
	if !c.draws(a.slots[partner].pool) {
		return netip.Addr{}, refuse(AddressConflict, "%s is the second address of Services that share %s, but no pool assigns it to %s: ask for both addresses, or use another sharing key",
			partner, s.addr, c.Key)
	}
	return partner, a.slots[partner].admits(c)
}

// join returns the lowest address that the claim can share; nil if there is none. A claim of both families prefers an
// existing pair. Without a pair, or with its other address settled, it gets an address that has no partner.
func (a *Allocator) join(c *Claim, f Family, both, settled bool) *slot {
	common := a.commons[f][sharingKey{c.Share, c.Policy}]
	if c.Share == "" || common == nil || common.full(c.Ports) {
		return nil
	}
	var alone, found *slot
	common.slots.Ascend(func(s *slot) bool {
		a.steps++
		if _, taken := s.taken(c); taken || !c.draws(s.pool) {
			return true
		}
		switch {
		case !both:
			found = s
		case len(s.partners) == 0:
			alone = cmp.Or(alone, s)
		case !settled:
			if _, err := a.follow(c, s); err == nil {
				found = s
			}
		}
		return found == nil && !(settled && alone != nil)
	})
	return cmp.Or(found, alone)
}

// lowest returns the lowest free address of the first pool that has one for the claim.
func (a *Allocator) lowest(c *Claim, f Family) (netip.Addr, error) {
	var exhausted []string
	for _, p := range a.pools.byPriority {
		a.steps++
		if !c.draws(p) || p.capacity[f].Sign() == 0 {
			continue
		}
		if addr, ok := p.free.lowest(f); ok {
			return addr, nil
		}
		exhausted = append(exhausted, p.Name)
	}
	if len(exhausted) > 0 {
		return netip.Addr{}, refuse(PoolExhausted, "no %s address is free in %s: add addresses, or release some", f, enumerate(exhausted))
	}
	if c.Pool == "" {
		return netip.Addr{}, refuse(NoPool, "no pool assigns %s addresses to %s: create one that does, or ask for a pool by name", f, c.Key)
	}
	switch p := a.pools.byName[c.Pool]; {
	case p == nil:
		return netip.Addr{}, refuse(NoPool, "there is no pool %q: create it, or ask for another", c.Pool)
	case !c.mayUse(p):
		return netip.Addr{}, refuse(NoPool, "the selectors of pool %q do not choose %s: ask for another pool", c.Pool, c.Key)
	}
	return netip.Addr{}, refuse(NoPool, "pool %q has no %s addresses: add some, or ask for another pool", c.Pool, f)
}
