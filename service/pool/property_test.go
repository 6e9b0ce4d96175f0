package pool_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/service/pool"
)

// perCheck is the minimum of operations in each of the 100 checks of rapid.
const perCheck = 1000

// TestRandomOperations performs random operations and compares each answer with a
// model that knows all addresses and visits all claims.
func TestRandomOperations(t *testing.T) {
	done := make(map[string]int)
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{T: rt, allocator: pool.New(), model: model{claims: map[string]pool.Claim{}, held: map[string]pair{}}, done: done}
		m.replace()
		actions := map[string]func(*rapid.T){
			"assign":  func(*rapid.T) { m.assign(m.claim()) },
			"again":   func(*rapid.T) { m.again() },
			"another": func(*rapid.T) { m.assign(m.claim()) }, // assigning is the most frequent operation
			"release": func(*rapid.T) { m.release() },
			"adopt":   func(*rapid.T) { m.adopt() },
			"restart": func(*rapid.T) { m.allocator = m.restart() },
			"replace": func(*rapid.T) {
				if m.chance(8) {
					m.replace()
				}
			},
			"": func(*rapid.T) { m.check() },
		}
		for m.steps < perCheck {
			rt.Repeat(actions)
		}
	})
	for _, event := range []string{"assigned", "kept", "shared", "paired", "partial", "moved", "stray", "restart",
		"AddressConflict", "PoolExhausted", "NoPool", "AddressNotInPool", "InvalidClaim"} {
		if done[event] == 0 {
			t.Errorf("%s never happened", event)
		}
	}
	t.Log(done)
}

// machine is an allocator beside the model.
type machine struct {
	*rapid.T
	model
	allocator *pool.Allocator
	steps     int
	done      map[string]int
}

func (m *machine) below(n int) int   { return rapid.IntRange(0, n-1).Draw(m.T, "n") }
func (m *machine) chance(n int) bool { return m.below(n) == 0 }

// claim makes one of a few claims, so that they conflict.
func (m *machine) claim() pool.Claim {
	c := pool.Claim{Key: string(rune('p' + m.below(9)))}
	c.Families = [][]pool.Family{{pool.IPv4}, {pool.IPv6}, {pool.IPv4, pool.IPv6}, {pool.IPv6, pool.IPv4}}[m.below(4)]
	c.Partial = m.chance(2)
	if m.chance(4) {
		for _, f := range c.Families[:1+m.below(len(c.Families))] {
			if m.chance(16) {
				f = 1 - f // or another of the same family
			}
			c.Addresses = append(c.Addresses, m.address(f))
		}
	}
	if m.chance(4) {
		c.Pool = string(rune('a' + m.below(4)))
	}
	if m.chance(8) {
		chosen := m.below(8)
		c.SelectedBy = func(name string) bool { return chosen&(1<<(name[0]-'a')) != 0 }
	}
	c.Share = []string{"", "", "x", "x", "x", "y"}[m.below(6)]
	if m.chance(8) {
		c.Policy = "local"
	}
	for range m.below(3) {
		c.Ports = append(c.Ports, pool.Port{Protocol: "TCP", Number: uint16(m.below(8))})
	}
	return c
}

func (m *machine) address(f pool.Family) netip.Addr {
	if f == pool.IPv4 {
		return universe[m.below(8)]
	}
	return universe[8+m.below(len(universe)-8)]
}

func (m *machine) assign(c pool.Claim) {
	m.steps++
	before, kept := m.held[c.Key], m.kept(c)
	twin := m.allocator
	if m.chance(6) {
		twin = m.restart()
	}
	addrs, err := m.allocator.Assign(c)
	if m.allocator != twin {
		if again, e := twin.Assign(c); !slices.Equal(again, addrs) || fmt.Sprint(e) != fmt.Sprint(err) {
			m.Fatalf("Assign(%+v) after a restart = %v, %v; without it %v, %v", c, again, e, addrs, err)
		}
	}
	got := m.pair(c, addrs)
	m.set(c, got)
	m.judge(c, before, kept, got, err)
	if m.Failed() {
		m.FailNow()
	}
}

// judge compares an answer with the possible ones. The model has the claim already.
func (m *machine) judge(c pool.Claim, before, kept, got pair, err error) {
	rest, asked := m.settled(c, kept)
	if err != nil {
		var r *pool.Refusal
		if !errors.As(err, &r) || r.Message == "" || strings.Contains(r.Message, "%!") {
			m.Errorf("Assign(%+v): error %#v", c, err)
			return
		}
		m.done[string(r.Reason)]++
		if got != kept {
			m.Errorf("Assign(%+v) leaves %v after a refusal, want %v: %v", c, got, kept, err)
		}
		if p, possible := m.find(c, kept, pair{}); possible {
			m.Errorf("Assign(%+v) is refused, yet %v would do: %v", c, p, err)
		}
		return
	}
	if !m.valid(c, kept, got) {
		m.Errorf("Assign(%+v) = %v, which is not permitted; before %v, kept %v", c, got, before, kept)
		return
	}
	m.done["assigned"]++
	if got == kept {
		m.done["kept"]++
	}
	if len(c.Families) == 2 && !full(got) {
		m.done["partial"]++
	}
	if m.valid(c, kept, rest) && whole(c, rest) && got != rest {
		m.Errorf("Assign(%+v) = %v, but it has %v", c, got, rest)
	}
	if !within(rest, got) { // it gave up an address that it had
		m.done["moved"]++
		if p, possible := m.find(c, kept, rest); possible {
			m.Errorf("Assign(%+v) = %v, but %v keeps %v", c, got, p, rest)
		}
	}
	if !whole(c, got) {
		floor := asked
		if within(rest, got) {
			floor = rest
		}
		both := c
		both.Partial = false
		if p, possible := m.find(both, kept, floor); possible {
			m.Errorf("Assign(%+v) = %v, but %v is possible", c, got, p)
		}
	}
	for f, addr := range got {
		if addr.IsValid() && addr != kept[f] && addr != asked[f] {
			m.judgeChoice(c, pool.Family(f), got)
		}
	}
}

// judgeChoice checks an address that the allocator chose: the first free one in
// order, or a shared one where sharing is possible.
func (m *machine) judgeChoice(c pool.Claim, f pool.Family, got pair) {
	if m.users(c.Key, got[f]) > 0 {
		m.done["shared"]++
		if full(got) && m.users(c.Key, got[1-f]) > 0 {
			m.done["paired"]++
		}
		return
	}
	for _, addr := range universe {
		if pool.FamilyOf(addr) != f || !m.draws(c, addr) {
			continue
		}
		if m.users(c.Key, addr) > 0 {
			if len(c.Families) == 1 && !m.clash(c, addr) {
				m.Errorf("Assign(%+v) = %v, but it could share %v", c, got, addr)
			}
			continue
		}
		p, q := m.poolOf(addr), m.poolOf(got[f])
		if cmp.Or(cmp.Compare(q.Priority, p.Priority), cmp.Compare(p.Name, q.Name), addr.Compare(got[f])) < 0 {
			m.Errorf("Assign(%+v) = %v, but %v is free in pool %s", c, got, addr, p.Name)
		}
	}
}

func (m *machine) again() {
	key, ok := m.someone()
	if !ok {
		return
	}
	m.assign(m.claims[key])
}

func (m *machine) someone() (string, bool) {
	keys := slices.Sorted(maps.Keys(m.claims))
	if len(keys) == 0 {
		return "", false
	}
	return keys[m.below(len(keys))], true
}

func (m *machine) release() {
	key, ok := m.someone()
	if !ok {
		return
	}
	m.steps++
	if got, want := m.allocator.Release(key), m.addresses(key); !slices.Equal(got, want) {
		m.Fatalf("Release(%s) = %v, want %v", key, got, want)
	}
	delete(m.claims, key)
	delete(m.held, key)
}

// adopt adopts random addresses, as if another writer had stored them.
func (m *machine) adopt() {
	if !m.chance(4) {
		return
	}
	m.steps++
	c := m.claim()
	var addrs []netip.Addr
	for range 1 + m.below(2) {
		addrs = append(addrs, universe[m.below(len(universe))])
	}
	delete(m.claims, c.Key)
	delete(m.held, c.Key)
	var want pair
	refused := false
	for _, addr := range addrs {
		f := pool.FamilyOf(addr)
		if want[f] != addr && (want[f].IsValid() || m.clash(c, addr)) {
			refused = true
			continue
		}
		want[f] = addr
	}
	m.set(c, want)
	err := m.allocator.Adopt(c, addrs)
	if (err != nil) != refused {
		m.Fatalf("Adopt(%+v, %v): %v", c, addrs, err)
	}
	m.strays(c.Key)
}

func (m *machine) strays(key string) {
	var want []netip.Addr
	for _, addr := range m.addresses(key) {
		if m.poolOf(addr) == nil {
			want = append(want, addr)
			m.done["stray"]++
		}
	}
	if got := strays(m.allocator, key); !slices.Equal(got, want) {
		m.Fatalf("%s: strays %v, want %v", key, got, want)
	}
}

// restart returns an allocator that has adopted the addresses of the model in random order.
func (m *machine) restart() *pool.Allocator {
	m.done["restart"]++
	a := pool.New()
	if m.chance(2) { // the pools may become known before or after the claims
		if err := a.Replace(m.pools); err != nil {
			m.Fatal(err)
		}
	}
	keys := slices.Sorted(maps.Keys(m.claims))
	for i := range keys {
		j := i + m.below(len(keys)-i)
		keys[i], keys[j] = keys[j], keys[i]
		if err := a.Adopt(m.claims[keys[i]], m.addresses(keys[i])); err != nil {
			m.Fatalf("restart: %v", err)
		}
	}
	if err := a.Replace(m.pools); err != nil {
		m.Fatal(err)
	}
	return a
}

// replace distributes the addresses among random pools; some stay outside all pools.
func (m *machine) replace() {
	m.steps++
	m.pools = nil
	for _, name := range []string{"a", "b", "c"}[:1+m.below(3)] {
		m.pools = append(m.pools, pool.Pool{Name: name, AutoAssign: !m.chance(6), Priority: m.below(2), AvoidBuggyIPs: m.chance(2)})
	}
	owner := 0
	for _, addr := range universe {
		if m.chance(3) {
			owner = m.below(len(m.pools))
			if m.chance(5) {
				owner = -1
			}
		}
		if owner < 0 {
			continue
		}
		p := &m.pools[owner]
		if n := len(p.Ranges); n > 0 && p.Ranges[n-1].Last.Next() == addr {
			p.Ranges[n-1].Last = addr
		} else {
			p.Ranges = append(p.Ranges, pool.Range{First: addr, Last: addr})
		}
	}
	if err := m.allocator.Replace(m.pools); err != nil {
		m.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(m.held)) {
		m.strays(key)
	}
}

// check compares the state of the allocator with the model.
func (m *machine) check() {
	for key := range m.claims {
		if got, want := m.allocator.Addresses(key), m.addresses(key); !slices.Equal(got, want) {
			m.Fatalf("Addresses(%s) = %v, want %v", key, got, want)
		}
		for _, addr := range m.addresses(key) {
			if m.clash(m.claims[key], addr) {
				m.Fatalf("%s has two claims: %v", addr, m.held)
			}
		}
	}
	var usage [3][2]struct{ capacity, used int64 }
	for _, addr := range universe {
		name, ok := m.allocator.PoolOf(addr)
		p := m.poolOf(addr)
		if ok != (p != nil) || ok && name != p.Name {
			m.Fatalf("PoolOf(%s) = %q, want %v", addr, name, p)
		}
		if !ok {
			continue
		}
		u := &usage[name[0]-'a'][pool.FamilyOf(addr)]
		u.capacity++
		if m.users("", addr) > 0 {
			u.used++
		}
	}
	for i, name := range []string{"a", "b", "c"} {
		for _, f := range []pool.Family{pool.IPv4, pool.IPv6} {
			if got, want := m.allocator.Usage(name, f), usage[i][f]; !same(got, want.capacity, want.used) {
				m.Fatalf("Usage(%s, %s) = %+v, want %+v", name, f, got, want)
			}
		}
	}
}
