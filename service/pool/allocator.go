package pool

import (
	"errors"
	"math/big"
	"net/netip"
	"slices"

	"github.com/google/btree"
)

// Allocator assigns the addresses of pools to claims. It is not safe for concurrent use.
type Allocator struct {
	pools    *layout
	slots    map[netip.Addr]*slot
	holdings map[string]*holding
	commons  [2]map[sharingKey]*commons // by Family
	steps    int                        // comparisons and candidates so far; bounded by tests
}

// holding is a claim with its addresses.
type holding struct {
	key   string
	share sharingKey
	ports []Port
	first Family // the more important one
	addrs pair
}

// Usage counts the addresses of one family in a pool, and those in use. A shared address counts once.
type Usage struct {
	Capacity *big.Int // read-only
	Used     int64
}

// New returns an Allocator without pools and claims.
func New() *Allocator {
	return &Allocator{
		pools:    &layout{},
		slots:    make(map[netip.Addr]*slot),
		holdings: make(map[string]*holding),
		commons:  [2]map[sharingKey]*commons{IPv4: {}, IPv6: {}},
	}
}

// Replace replaces the pools. All claims keep their addresses, in a pool or not. It changes nothing and returns an
// error if two pools overlap ([OverlapError]) or have the same name, or if a range is invalid. It visits every claim.
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

// Adopt takes over the addresses that a claim has by a stored answer. The caller
// adopts all claims before it assigns any, the oldest claims first. Adopt ignores
// the pools: the claim also gets, and keeps, addresses that no pool contains.
//
// Adopt rejects an address that belongs to another claim, and a second address of a family. The error joins one
// [Refusal] for each of them; Assign finds another address instead. Adopt releases the previous addresses of the claim.
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
			refused = append(refused, refuse(InvalidClaim, "%s cannot be adopted: remove it, as no Service can have this address", addr))
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

// Assign gives addresses to a new or changed claim, or returns a [Refusal]. A claim that has the addresses it wants
// keeps them. Assign returns the addresses that the claim has now, its first family first. After a refusal these are
// its previous addresses, without families that it no longer wants and without addresses that the sharing rules now
// deny to it.
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

// Release ends a claim and returns its addresses; nil if the claim is unknown. A
// claim that was refused may succeed now.
func (a *Allocator) Release(key string) []netip.Addr {
	had := a.Addresses(key)
	if h := a.holdings[key]; h != nil {
		for f, addr := range h.addrs {
			if addr.IsValid() {
				a.leave(h, a.slots[addr], h.addrs[Family(f).other()])
			}
		}
		delete(a.holdings, key)
	}
	return had
}

// Addresses returns the addresses of a claim, its first family first.
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

// PoolOf returns the name of the pool that an address belongs to, in use or not.
func (a *Allocator) PoolOf(addr netip.Addr) (name string, ok bool) {
	if s := a.pools.containing(addr); s != nil {
		return s.Name, true
	}
	return "", false
}

// Usage counts the addresses of a pool; zero if there is no such pool.
func (a *Allocator) Usage(pool string, f Family) Usage {
	s := a.pools.byName[pool]
	if s == nil {
		return Usage{Capacity: new(big.Int)}
	}
	return Usage{Capacity: s.capacity[f], Used: s.used[f]}
}

// hold records the addresses of a claim, without any check.
func (a *Allocator) hold(c *Claim, addrs pair) {
	if addrs == (pair{}) {
		return
	}
	h := &holding{key: c.Key, share: sharingKey{c.Share, c.Policy}, first: c.Families[0], addrs: addrs}
	for _, p := range c.Ports {
		if !slices.Contains(h.ports, p) {
			h.ports = append(h.ports, p)
		}
	}
	a.holdings[h.key] = h
	for f, addr := range addrs {
		if addr.IsValid() {
			a.enter(h, a.slot(addr, h.share), addrs[Family(f).other()])
		}
	}
}

// slot returns the slot of an address; it makes one with the sharing key k if the address is free.
func (a *Allocator) slot(addr netip.Addr, k sharingKey) *slot {
	if s := a.slots[addr]; s != nil {
		return s
	}
	s := &slot{addr: addr, share: k, holders: make(map[string]bool)}
	a.slots[addr] = s
	a.place(s)
	if k.key != "" {
		byKey := a.commons[FamilyOf(addr)]
		if byKey[k] == nil {
			byKey[k] = &commons{users: make(map[Port]int), slots: btree.NewG(degree, func(x, y *slot) bool {
				a.steps++
				return x.addr.Less(y.addr)
			})}
		}
		byKey[k].slots.ReplaceOrInsert(s)
		s.common, s.ports, s.partners = byKey[k], make(map[Port]string), make(map[netip.Addr]int)
	}
	return s
}

// place finds the pool of a slot and removes its address from the free addresses.
func (a *Allocator) place(s *slot) {
	if s.pool = a.pools.containing(s.addr); s.pool != nil {
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

// remove frees the address of a slot.
func (a *Allocator) remove(s *slot) {
	delete(a.slots, s.addr)
	if s.pool != nil {
		s.pool.free.give(s.addr)
		s.pool.used[FamilyOf(s.addr)]--
	}
	if s.common != nil {
		if s.common.slots.Delete(s); s.common.slots.Len() == 0 {
			delete(a.commons[FamilyOf(s.addr)], s.share)
		}
	}
}

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

// admits returns a [Refusal] if the claim cannot share the address with its holders. A nil slot is a free address.
func (s *slot) admits(c *Claim) error {
	switch {
	case s == nil:
		return nil
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

// partner returns the second address of dual-stack holders of s. only reports whether there is exactly one.
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

// full reports whether a port of the claim is in use on every slot. It spares
// claims with one key and one port a scan of all their addresses.
func (c *commons) full(ports []Port) bool {
	return slices.ContainsFunc(ports, func(p Port) bool { return c.users[p] == c.slots.Len() })
}
