package nft

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// table is what is in Herald's table, as it is wanted, or as it was found.
type table struct {
	dormant bool // packets come to none of its chains
	chains  map[string]chain
	sets    map[string]set
}

// chain has rules, and a hook if packets come to it by themselves.
type chain struct {
	hook  *hook
	rules []ruleset.Rule
}

type hook struct {
	kind     nftables.ChainType
	at       nftables.ChainHook
	priority nftables.ChainPriority
}

// set is a set or map of nftables.
type set struct {
	kind     kind
	elements map[string]element // by key
}

// element is in a set, and leads to a chain if that is a map.
type element struct {
	chain   string
	comment string
	lasts   time.Duration // from when it was put there; 0: for ever
}

// edit is about an element of a set.
type edit struct {
	set, key string
	element  element
}

func (e edit) compare(other edit) int {
	return cmp.Or(cmp.Compare(e.set, other.set), cmp.Compare(e.key, other.key))
}

// plan is how to make one table of another, step by step in this order, in one batch.
// What is in both is not touched: rules go on counting, and elements end when they end.
type plan struct {
	awaken     bool     // as is any table that is written to
	remove     []edit   // what was there
	addSets    []string // and
	addChains  []string // are empty at first
	fill       []string // chains whose rules are replaced
	put        []edit
	dropChains []string
	dropSets   []string
}

func (p plan) empty() bool {
	return !p.awaken && len(p.remove)+len(p.addSets)+len(p.addChains)+len(p.fill)+len(p.put)+len(p.dropChains)+len(p.dropSets) == 0
}

// renew puts an element whether or not it is there still, and starts its time anew.
func (p *plan) renew(e edit) {
	p.remove, p.put = append(p.remove, e), append(p.put, e)
}

// change plans to make want of have.
func change(have, want table) plan {
	p := plan{awaken: have.dormant}
	for name, c := range sorted(want.chains) {
		there, ok := have.chains[name]
		if ok && !c.hook.equal(there.hook) { // it is made anew, under the same name
			p.dropChains = append(p.dropChains, name)
			ok = false
		}
		if !ok {
			p.addChains = append(p.addChains, name)
		}
		if !ok || !slices.EqualFunc(c.rules, there.rules, ruleset.Rule.Same) {
			p.fill = append(p.fill, name)
		}
	}
	for name := range sorted(have.chains) {
		if _, ok := want.chains[name]; !ok {
			p.dropChains = append(p.dropChains, name)
		}
	}
	for name, s := range sorted(want.sets) {
		there, ok := have.sets[name]
		if !ok {
			p.addSets = append(p.addSets, name)
		}
		for key, e := range s.elements {
			if old, ok := there.elements[key]; ok && old.chain == e.chain && old.comment == e.comment {
				continue
			} else if ok {
				p.remove = append(p.remove, edit{name, key, old})
			}
			p.put = append(p.put, edit{name, key, e})
		}
		for key, e := range there.elements {
			if _, ok := s.elements[key]; !ok {
				p.remove = append(p.remove, edit{name, key, e})
			}
		}
	}
	for name := range sorted(have.sets) {
		if _, ok := want.sets[name]; !ok {
			p.dropSets = append(p.dropSets, name)
		}
	}
	slices.SortFunc(p.remove, edit.compare) // those of a set together
	slices.SortFunc(p.put, edit.compare)
	return p
}

// sorted goes through a map in the order of its keys, so that the same change is the same plan.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

func (h *hook) equal(other *hook) bool {
	return h == other || h != nil && other != nil && *h == *other
}

// packets is what a chain has counted.
func (c chain) packets() uint64 {
	var sum uint64
	for _, r := range c.rules {
		sum += r.Packets
	}
	return sum
}

// only is the part of a table whose names are like that.
func (t table) only(like func(name string) bool) table {
	out := table{chains: make(map[string]chain), sets: make(map[string]set)}
	out.add(t, like)
	return out
}

// add adds the part of another table whose names are like that.
func (t table) add(other table, like func(name string) bool) {
	for name, c := range other.chains {
		if like(name) {
			t.chains[name] = c
		}
	}
	for name, s := range other.sets {
		if like(name) {
			t.sets[name] = s
		}
	}
}
