package pool

import (
	"cmp"
	"net/netip"
)

// choose decides which addresses a claim gets. It has none now; kept are those
// that it had and may have again.
func (a *Allocator) choose(c *Claim, kept pair) (pair, error) {
	asked, err := a.grant(c, kept)
	if err != nil {
		return pair{}, err
	}
	settled := asked
	for f, addr := range kept {
		if !asked[f].IsValid() && a.serves(c, addr) {
			settled[f] = addr
		}
	}
	if settled != kept && !a.together(settled) {
		settled = asked // what it had does not go with what it asks for
	}
	chosen, err := a.complete(c, settled)
	if err == nil || settled == asked {
		return chosen, err
	}
	// Elsewhere there may be addresses for both families.
	if moved, err := a.complete(c, asked); err == nil {
		return moved, nil
	}
	return pair{}, err
}

// serves reports whether an address that the claim has will do for the pool that
// it asks for. One that is in no pool will: the pool was changed, not the claim.
func (a *Allocator) serves(c *Claim, addr netip.Addr) bool {
	p := a.pools.of(addr)
	return addr.IsValid() && (c.Pool == "" || p == nil || p.Name == c.Pool)
}

// grant returns the addresses that the claim asks for, if it may have them.
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
			return pair{}, refuse(AddressNotInPool, "%s is in no pool that is ready: ask for an address of one, or add it to one", addr)
		case c.Pool != "" && c.Pool != p.Name:
			return pair{}, refuse(AddressNotInPool, "%s is in pool %q, not in pool %q: ask for only one of address and pool", addr, p.Name, c.Pool)
		case p.free.skip(addr):
			return pair{}, refuse(AddressNotInPool, "%s ends in .0 or .255, which pool %q avoids: ask for another address", addr, p.Name)
		case !c.mayUse(p):
			return pair{}, refuse(AddressNotInPool, "%s is in pool %q, whose selectors do not choose %s: ask for an address of another pool",
				addr, p.Name, c.Key)
		}
		if err := a.slots[addr].admits(c); err != nil {
			return pair{}, err
		}
	}
	if asked != kept && !a.together(asked) {
		return pair{}, refuse(AddressConflict, "%s and %s do not go together: those who share one of them have another address beside it",
			asked[IPv4], asked[IPv6])
	}
	return asked, nil
}

// together reports whether a claim may have both addresses of a pair.
func (a *Allocator) together(p pair) bool {
	return !p.both() || a.goes(p[IPv4], p[IPv6]) && a.goes(p[IPv6], p[IPv4])
}

// goes reports whether all who have addr, and one of the other family, have partner.
func (a *Allocator) goes(addr, partner netip.Addr) bool {
	s := a.slots[addr]
	if s == nil || len(s.partners) == 0 {
		return true
	}
	addr, only := s.partner()
	return only && addr == partner
}

// complete finds what is missing of the addresses that the claim is to have.
func (a *Allocator) complete(c *Claim, settled pair) (pair, error) {
	chosen, err := a.fill(c, settled, c.Families)
	if err == nil || !c.Partial {
		return chosen, err
	}
	if settled != (pair{}) {
		return settled, nil
	}
	for _, f := range c.Families {
		if one, err := a.fill(c, settled, []Family{f}); err == nil {
			return one, nil
		}
	}
	return pair{}, err
}

// fill finds an address of each of the families, where there is none yet.
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

// find finds an address beside that of the other family, if there is one already.
// The claim shares an address if it can, and else gets a free one.
func (a *Allocator) find(c *Claim, f Family, beside netip.Addr, both bool) (netip.Addr, error) {
	if s := a.slots[beside]; s != nil && len(s.partners) > 0 {
		return a.follow(c, s)
	}
	if s := a.join(c, f, both, beside.IsValid()); s != nil {
		return s.addr, nil
	}
	return a.lowest(c, f)
}

// follow is the address that goes with one that the claim is to share.
func (a *Allocator) follow(c *Claim, s *slot) (netip.Addr, error) {
	partner, only := s.partner()
	if !only || !a.goes(partner, s.addr) {
		return netip.Addr{}, refuse(AddressConflict, "those who share %s have different addresses beside it: ask for another address, or use another sharing key", s.addr)
	}
	if !c.draws(a.slots[partner].pool) {
		return netip.Addr{}, refuse(AddressConflict, "%s goes with %s for those who share it, but no pool assigns it to %s: ask for both addresses, or use another sharing key",
			partner, s.addr, c.Key)
	}
	return partner, a.slots[partner].admits(c)
}

// join is the lowest address that the claim can share, nil if there is none. For
// both families a pair that others have already is the best; if there is none,
// or the other address of the claim is settled, it is an address that nobody has
// as a part of a pair.
func (a *Allocator) join(c *Claim, f Family, both, settled bool) *slot {
	common := a.commons[f][terms{c.Share, c.Policy}]
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

// lowest is the lowest free address of the first pool that has one for the claim.
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
