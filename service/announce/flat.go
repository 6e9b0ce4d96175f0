package announce

import (
	"reflect"
	"slices"

	"github.com/herald-vip/herald/internal/rendezvous"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/speaker/flat"
)

// Flat returns the addresses that this node may hold on a flat layer 2, in order. A drain
// does not change the list: package speaker, which holds the addresses, drains them.
func (a *Announcer) Flat() []flat.Address {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []flat.Address
	a.addresses.Ascend(func(x *address) bool {
		if x.flat != nil {
			out = append(out, *x.flat)
		}
		return true
	})
	return out
}

// updateFlat updates the entry of an address in the result of Flat.
func (a *Announcer) updateFlat(x *address, may bool) {
	var next *flat.Address
	if may {
		next = &flat.Address{
			Addr: x.addr, Pool: x.pool.name, Interfaces: x.pool.arp.interfaces, Service: x.service, Nodes: a.holders(x),
			Preempt: x.pool.arp.preempt,
		}
		next.Preferred = a.preferred(x, next.Nodes)
		for pair := range slices.Chunk(x.claims[0].wants.addrs, 2) { // other writers may set more than two addresses
			if i := slices.Index(pair, x.addr); i >= 0 && len(pair) == 2 {
				next.Apart = pair[1-i]
			}
		}
	}
	if !reflect.DeepEqual(x.flat, next) {
		x.flat = next
		a.moved = true
	}
}

// holders returns the nodes that may hold an address: all nodes that its pool selects or,
// if the holder must have an endpoint, the selected nodes with an endpoint.
func (a *Announcer) holders(x *address) []string {
	var backed []string
	for _, b := range x.claims {
		if !x.served(b) {
			continue
		}
		if a.rule(b) != service.OnNode {
			return x.pool.arp.nodes
		}
		backed = append(backed, service.Nodes(pool.FamilyOf(x.addr), b.endpoints())...)
	}
	slices.Sort(backed)
	backed = slices.Compact(backed)
	return slices.DeleteFunc(backed, func(node string) bool {
		_, selected := slices.BinarySearch(x.pool.arp.nodes, node)
		return !selected
	})
}

// preferred returns the preference of each node as the holder of an address. Nodes that the Service names come first, in
// that order; the preferences of the pool rank the others.
func (a *Announcer) preferred(x *address, nodes []string) map[string]int {
	wants, preferences := x.claims[0].wants, x.pool.arp.preferences
	if len(preferences) == 0 && len(wants.prefers) == 0 {
		return nil
	}
	backed := service.Nodes(pool.FamilyOf(x.addr), x.claims[0].endpoints())
	out := make(map[string]int)
	for _, name := range nodes {
		if i := slices.Index(wants.prefers, name); i >= 0 {
			out[name] = max(rendezvous.MostPreferred-i, 0)
			continue
		}
		for _, p := range preferences {
			if p.selectors.Match(a.nodes[name].Labels) && (!p.endpoints || slices.Contains(backed, name)) {
				out[name] += p.weight
			}
		}
	}
	return out
}
