package pool_test

import (
	"net/netip"
	"slices"

	"github.com/herald-vip/herald/service/pool"
)

// universe is all addresses of the model, in order. It contains buggy addresses and
// their neighbours.
var universe = func() []netip.Addr {
	var all []netip.Addr
	for addr, n := netip.MustParseAddr("10.0.0.252"), 0; n < 8; addr, n = addr.Next(), n+1 {
		all = append(all, addr)
	}
	for addr, n := netip.MustParseAddr("fd00::fe"), 0; n < 5; addr, n = addr.Next(), n+1 {
		all = append(all, addr)
	}
	return all
}()

// pair is the addresses of a claim, by family.
type pair [2]netip.Addr

func full(p pair) bool { return p[0].IsValid() && p[1].IsValid() }

// whole reports whether p has all families that the claim wants.
func whole(c pool.Claim, p pair) bool {
	return !slices.ContainsFunc(c.Families, func(f pool.Family) bool { return !p[f].IsValid() })
}

// within reports whether b has all addresses of a.
func within(a, b pair) bool {
	for f, addr := range a {
		if addr.IsValid() && b[f] != addr {
			return false
		}
	}
	return true
}

// model is a simple allocator without regard to cost.
type model struct {
	pools  []pool.Pool
	claims map[string]pool.Claim
	held   map[string]pair
}

func (m *model) set(c pool.Claim, p pair) {
	delete(m.claims, c.Key)
	delete(m.held, c.Key)
	if p != (pair{}) {
		m.claims[c.Key], m.held[c.Key] = c, p
	}
}

func (m *model) pair(c pool.Claim, addrs []netip.Addr) pair {
	var p pair
	for _, addr := range addrs {
		p[pool.FamilyOf(addr)] = addr
	}
	return p
}

// addresses returns the addresses of a claim, its first family first.
func (m *model) addresses(key string) []netip.Addr {
	p, ok := m.held[key]
	if !ok {
		return nil
	}
	var addrs []netip.Addr
	first := m.claims[key].Families[0]
	for _, f := range []pool.Family{first, 1 - first} {
		if p[f].IsValid() {
			addrs = append(addrs, p[f])
		}
	}
	return addrs
}

func (m *model) poolOf(addr netip.Addr) *pool.Pool {
	for i, p := range m.pools {
		for _, r := range p.Ranges {
			if addr.Less(r.First) || r.Last.Less(addr) {
				continue
			}
			if last := addr.AsSlice()[addr.BitLen()/8-1]; p.AvoidBuggyIPs && addr.Is4() && (last == 0 || last == 255) {
				return nil
			}
			return &m.pools[i]
		}
	}
	return nil
}

// users counts the other claims that hold an address.
func (m *model) users(key string, addr netip.Addr) int {
	n := 0
	for other, p := range m.held {
		if other != key && slices.Contains(p[:], addr) {
			n++
		}
	}
	return n
}

// clash reports whether a holder of the address cannot share it with the claim.
func (m *model) clash(c pool.Claim, addr netip.Addr) bool {
	for key, p := range m.held {
		if key == c.Key || !slices.Contains(p[:], addr) {
			continue
		}
		o := m.claims[key]
		if c.Share == "" || c.Share != o.Share || c.Policy != o.Policy {
			return true
		}
		for _, port := range c.Ports {
			if slices.Contains(o.Ports, port) {
				return true
			}
		}
	}
	return false
}

// kept returns the previous addresses of the claim that it may have again.
func (m *model) kept(c pool.Claim) pair {
	var kept pair
	for _, f := range c.Families {
		if addr := m.held[c.Key][f]; addr.IsValid() && !m.clash(c, addr) {
			kept[f] = addr
		}
	}
	return kept
}

// asked returns the addresses that the claim asks for; not ok if they contradict its families.
func (m *model) asked(c pool.Claim) (p pair, ok bool) {
	for _, addr := range c.Addresses {
		f := pool.FamilyOf(addr)
		if !slices.Contains(c.Families, f) || p[f].IsValid() && p[f] != addr {
			return p, false
		}
		p[f] = addr
	}
	return p, true
}

// settled returns the addresses that are kept or granted before any are chosen.
func (m *model) settled(c pool.Claim, kept pair) (settled, asked pair) {
	asked, _ = m.asked(c)
	settled = asked
	for f, addr := range kept {
		if !asked[f].IsValid() && addr.IsValid() && m.suits(c, addr) {
			settled[f] = addr
		}
	}
	if settled != kept && !m.together(c.Key, settled) {
		settled = asked
	}
	return settled, asked
}

// suits reports whether the claim may keep an address, given the pool that it asks for.
func (m *model) suits(c pool.Claim, addr netip.Addr) bool {
	p := m.poolOf(addr)
	return c.Pool == "" || p == nil || p.Name == c.Pool
}

func (m *model) may(c pool.Claim, addr netip.Addr) bool {
	p := m.poolOf(addr)
	return p != nil && (c.Pool == "" || c.Pool == p.Name) && (c.SelectedBy == nil || c.SelectedBy(p.Name))
}

func (m *model) draws(c pool.Claim, addr netip.Addr) bool {
	return m.may(c, addr) && (c.Pool != "" || m.poolOf(addr).AutoAssign)
}

// together reports whether every dual-stack claim that holds one address of p also
// holds the other.
func (m *model) together(key string, p pair) bool {
	for other, o := range m.held {
		if other != key && full(p) && full(o) && (p[0] == o[0]) != (p[1] == o[1]) {
			return false
		}
	}
	return true
}

// valid reports whether p is a correct answer for the claim.
func (m *model) valid(c pool.Claim, kept, p pair) bool {
	asked, ok := m.asked(c)
	if !ok || !within(asked, p) || p == (pair{}) || !c.Partial && !whole(c, p) {
		return false
	}
	for f, addr := range p {
		if !addr.IsValid() {
			continue
		}
		if !slices.Contains(c.Families, pool.Family(f)) || m.clash(c, addr) {
			return false
		}
		switch {
		case addr == kept[f] && (addr == asked[f] || m.suits(c, addr)):
		case addr == asked[f] && m.may(c, addr):
		case m.draws(c, addr):
		default:
			return false
		}
	}
	return p == kept || m.together(c.Key, p)
}

// find searches for a correct answer that includes all addresses of floor.
func (m *model) find(c pool.Claim, kept, floor pair) (pair, bool) {
	candidates := append([]netip.Addr{{}}, universe...)
	for _, v4 := range candidates {
		for _, v6 := range candidates {
			if p := (pair{v4, v6}); (!v4.IsValid() || v4.Is4()) && (!v6.IsValid() || v6.Is6()) && within(floor, p) && m.valid(c, kept, p) {
				return p, true
			}
		}
	}
	return pair{}, false
}
