package nft

import (
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/herald-vip/herald/netutil/ruleset"
)

// table is the content of Herald's table, desired or found.
type table struct {
	dormant bool // the kernel skips its chains
	chains  map[string]chain
	sets    map[string]set
}

// chain has rules, and a hook if it is a base chain.
type chain struct {
	hook  hook // zero: none
	rules []ruleset.Rule
}

// hook is a place in the kernel's packet flow.
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

// element is an element of a set. In a map it has a target chain.
type element struct {
	chain   string
	comment string
	lasts   time.Duration // timeout; 0 is none
}

// edit adds or removes an element of a set.
type edit struct {
	set, key string
	element  element
}

// plan lists the steps from one table to another, in their order in a batch. It leaves common parts alone: rules keep their
// counters and elements their timeouts.
type plan struct {
	awaken     bool     // wakes a dormant table; any write does
	remove     []edit   // old elements
	addSets    []string // without elements
	addChains  []string // without rules
	fill       []string // chains to replace the rules of
	put        []edit
	dropChains []string
	dropSets   []string
}

func (p plan) empty() bool {
	return !p.awaken && len(p.remove)+len(p.addSets)+len(p.addChains)+len(p.fill)+len(p.put)+len(p.dropChains)+len(p.dropSets) == 0
}

// renew adds an element or restarts its timeout.
func (p *plan) renew(e edit) {
	p.remove, p.put = append(p.remove, e), append(p.put, e)
}

// and adds the edits and rules that another plan renews.
func (p plan) and(renewed plan) plan {
	p.remove, p.put = append(p.remove, renewed.remove...), append(p.put, renewed.put...)
	p.fill = append(p.fill, renewed.fill...)
	return p
}

// change plans the change from have to want.
func change(have, want table) plan {
	p := plan{awaken: have.dormant}
	for name, c := range sorted(want.chains) {
		prev, ok := have.chains[name]
		if ok && c.hook != prev.hook { // replaced under the same name
			p.dropChains = append(p.dropChains, name)
			ok = false
		}
		if !ok {
			p.addChains = append(p.addChains, name)
		}
		if !ok || !slices.EqualFunc(c.rules, prev.rules, ruleset.Rule.Same) {
			p.fill = append(p.fill, name)
		}
	}
	for name := range sorted(have.chains) {
		if _, ok := want.chains[name]; !ok {
			p.dropChains = append(p.dropChains, name)
		}
	}
	for name, s := range sorted(want.sets) {
		prev, ok := have.sets[name]
		if !ok {
			p.addSets = append(p.addSets, name)
		}
		for key, e := range s.elements {
			if old, ok := prev.elements[key]; ok && old.chain == e.chain && old.comment == e.comment {
				continue
			} else if ok {
				p.remove = append(p.remove, edit{name, key, old})
			}
			p.put = append(p.put, edit{name, key, e})
		}
		for key, e := range prev.elements {
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
	return p
}

// sorted iterates over a map in the order of its keys, so that equal changes give equal plans.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// packets returns the sum of the chain's counters.
func (c chain) packets() uint64 {
	var sum uint64
	for _, r := range c.rules {
		sum += r.Packets
	}
	return sum
}

// add adds the chains and sets of other with names that like accepts.
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
