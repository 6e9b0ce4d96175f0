package pool

import (
	"errors"
	"math/big"
	"net/netip"
	"slices"
)

// Allocator knows who has which address. It is not safe for concurrent use.
type Allocator struct {
	pools    *layout
	slots    map[netip.Addr]*slot
	holdings map[string]*holding
	commons  [2]map[terms]*commons // by Family
	steps    int                   // comparisons and candidates so far, which tests bound
}

// holding is what a claim has.
type holding struct {
	key   string
	terms terms
	ports []Port
	first Family // the more important
	addrs pair
}

// Usage is how many addresses of one family a pool has and how many of these are
// in use, shared ones once.
type Usage struct {
	Capacity *big.Int // not to be changed
	Used     int64
}

// New is an Allocator without pools and claims.
func New() *Allocator {
	return &Allocator{
		pools:    &layout{},
		slots:    make(map[netip.Addr]*slot),
		holdings: make(map[string]*holding),
		commons:  [2]map[terms]*commons{IPv4: {}, IPv6: {}},
	}
}

// Replace has addresses assigned from these pools and no others from now on. All
// claims keep their addresses, in a pool or not. If two pools overlap ([OverlapError])
// or have the same name, or one has a range that is none, nothing changes.
//
// It looks at every claim.
func (a *Allocator) Replace(pools []Pool) error {
	l, err := newLayout(pools, &a.steps)
	if err != nil {
		return err
	}
	a.pools = l
	for _, s := range a.slots {
		a.place(s)
	}
	return nil
}

// Adopt takes over what a claim has already, as it was written down: all that
// was is to be adopted before anything is assigned, the oldest claims first. It
// asks no pool: the claim has those of the addresses that are in none, too, and
// keeps them ([Allocator.Assign]).
//
// An address that belongs to another claim, or a second one of a family, is not
// taken over: the error is one [Refusal] for each, joined, and Assign finds
// another address in its place. What the claim had before is released.
func (a *Allocator) Adopt(c Claim, addrs []netip.Addr) error {
	if err := c.check(); err != nil {
		return err
	}
	a.Release(c.Key)
	var chosen pair
	var refused []error
	for _, addr := range addrs {
		addr = addr.Unmap()
		if !addr.IsValid() || addr.Zone() != "" {
			refused = append(refused, refuse(InvalidClaim, "%s cannot be adopted: remove what is no address that a Service can have", addr))
			continue
		}
		f := FamilyOf(addr)
		if chosen[f].IsValid() && chosen[f] != addr {
			refused = append(refused, refuse(InvalidClaim, "%s has a second %s address, %s, beside %s: remove one of them", c.Key, f, addr, chosen[f]))
			continue
		}
		if err := a.slots[addr].admits(&c); err != nil {
			refused = append(refused, err)
			continue
		}
		chosen[f] = addr
	}
	a.hold(&c, chosen)
	return errors.Join(refused...)
}

// Assign gives a claim addresses, or tells why not by a [Refusal]. It is for new
// claims and for those that may have changed: those who have what they want keep
// it. The addresses are what the claim has now, that of its first family before
// the other. After a refusal these are what it had before, as far as it wants
// the family and nobody rules it out by sharing the address.
func (a *Allocator) Assign(c Claim) ([]netip.Addr, error) {
	if err := c.check(); err != nil {
		return a.Addresses(c.Key), err
	}
	had := a.Release(c.Key)
	var kept pair
	for _, addr := range had {
		if f := FamilyOf(addr); slices.Contains(c.Families, f) && a.slots[addr].admits(&c) == nil {
			kept[f] = addr
		}
	}
	chosen, err := a.choose(&c, kept)
	if err != nil {
		chosen = kept
	}
	a.hold(&c, chosen)
	return a.Addresses(c.Key), err
}

// Release ends a claim and returns the addresses it had, none if it is unknown.
// Somebody who was refused may be given them now.
func (a *Allocator) Release(key string) []netip.Addr {
	had := a.Addresses(key)
	if h := a.holdings[key]; h != nil {
		a.drop(h)
		delete(a.holdings, key)
	}
	return had
}

// Addresses are what a claim has, that of its first family before the other.
func (a *Allocator) Addresses(key string) []netip.Addr {
	h := a.holdings[key]
	if h == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, f := range []Family{h.first, h.first.other()} {
		if h.addrs[f].IsValid() {
			addrs = append(addrs, h.addrs[f])
		}
	}
	return addrs
}

// PoolOf is the name of the pool that an address belongs to, in use or not.
func (a *Allocator) PoolOf(addr netip.Addr) (name string, ok bool) {
	if s := a.pools.of(addr); s != nil {
		return s.Name, true
	}
	return "", false
}

// Usage counts the addresses of a pool, none if there is no such pool.
func (a *Allocator) Usage(pool string, f Family) Usage {
	s := a.pools.byName[pool]
	if s == nil {
		return Usage{Capacity: new(big.Int)}
	}
	return Usage{Capacity: s.capacity[f], Used: s.used[f]}
}

// hold gives a claim addresses that it may have.
func (a *Allocator) hold(c *Claim, addrs pair) {
	if addrs == (pair{}) {
		return
	}
	h := &holding{key: c.Key, terms: terms{c.Share, c.Policy}, first: c.Families[0], addrs: addrs}
	for _, p := range c.Ports {
		if !slices.Contains(h.ports, p) {
			h.ports = append(h.ports, p)
		}
	}
	a.holdings[h.key] = h
	for f, addr := range addrs {
		if addr.IsValid() {
			a.enter(h, a.slot(addr, h.terms), addrs[Family(f).other()])
		}
	}
}

// slot is that of an address, which is put to use on these terms if it is free.
func (a *Allocator) slot(addr netip.Addr, t terms) *slot {
	if s := a.slots[addr]; s != nil {
		return s
	}
	s := &slot{addr: addr, terms: t, holders: make(map[string]bool)}
	a.slots[addr] = s
	a.place(s)
	if t.share != "" {
		of := a.commons[FamilyOf(addr)]
		if of[t] == nil {
			of[t] = newCommons(&a.steps)
		}
		of[t].slots.ReplaceOrInsert(s)
		s.common, s.ports, s.partners = of[t], make(map[Port]string), make(map[netip.Addr]int)
	}
	return s
}

// place finds the pool of a slot and takes its address out of what is free there.
func (a *Allocator) place(s *slot) {
	if s.pool = a.pools.of(s.addr); s.pool != nil {
		s.pool.free.take(s.addr)
		s.pool.used[FamilyOf(s.addr)]++
	}
}

func (a *Allocator) enter(h *holding, s *slot, partner netip.Addr) {
	s.holders[h.key] = true
	if s.common == nil {
		return
	}
	if partner.IsValid() {
		s.partners[partner]++
	}
	for _, p := range h.ports {
		s.ports[p] = h.key
		s.common.users[p]++
	}
}

// drop takes all addresses from a claim.
func (a *Allocator) drop(h *holding) {
	for f, addr := range h.addrs {
		if addr.IsValid() {
			a.leave(h, a.slots[addr], h.addrs[Family(f).other()])
		}
	}
}

func (a *Allocator) leave(h *holding, s *slot, partner netip.Addr) {
	delete(s.holders, h.key)
	if len(s.holders) == 0 {
		defer a.remove(s)
	}
	if s.common == nil {
		return
	}
	if partner.IsValid() {
		if s.partners[partner]--; s.partners[partner] == 0 {
			delete(s.partners, partner)
		}
	}
	for _, p := range h.ports {
		delete(s.ports, p)
		if s.common.users[p]--; s.common.users[p] == 0 {
			delete(s.common.users, p)
		}
	}
}

// remove makes the address of a slot free.
func (a *Allocator) remove(s *slot) {
	delete(a.slots, s.addr)
	if s.pool != nil {
		s.pool.free.give(s.addr)
		s.pool.used[FamilyOf(s.addr)]--
	}
	if s.common != nil {
		if s.common.slots.Delete(s); s.common.slots.Len() == 0 {
			delete(a.commons[FamilyOf(s.addr)], s.terms)
		}
	}
}
