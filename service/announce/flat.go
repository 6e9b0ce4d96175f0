package announce

import (
	"reflect"
	"slices"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// Flat is the addresses that this node may hold on a flat layer 2, in order. A drain
// does not change it: that is for package speaker, which has the addresses, to do.
func (a *Announcer) Flat() []Address {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Address
	a.addresses.Ascend(func(x *address) bool {
		if x.flat != nil {
			out = append(out, *x.flat)
		}
		return true
	})
	return out
}

// offer brings what Flat says of an address up to date.
func (a *Announcer) offer(x *address, may bool) {
	var next *Address
	if may {
		next = &Address{
			Addr: x.addr, Pool: x.pool.name, Interfaces: x.pool.arp.interfaces, Service: x.service, Nodes: holders(x),
		}
	}
	if !reflect.DeepEqual(x.flat, next) {
		x.flat = next
		a.moved = true
	}
}

// holders are the nodes that may hold an address: those that its pool selects, and of
// these, with the traffic policy Local, those that have an endpoint.
func holders(x *address) []string {
	var backed []string
	for _, b := range x.claims {
		if !x.served(b) {
			continue
		}
		if !b.wants.local {
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
