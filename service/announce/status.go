package announce

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/tenant"
)

// Stage is how far the announcement of an address by BGP has come.
type Stage int

const (
	// Withdrawn: no route.
	Withdrawn Stage = iota
	// Announced: a route leads here.
	Announced
	// Draining: as Announced, with the route marked as going.
	Draining
)

// String is the stage's name in status and metrics.
func (s Stage) String() string {
	switch s {
	case Announced:
		return "announced"
	case Draining:
		return "draining"
	}
	return "withdrawn"
}

// ServiceStatus is one Service.
type ServiceStatus struct {
	// Key is namespace/name.
	Key string
	// Origin is what it was derived from, if it is a tenant's.
	Origin tenant.Origin
	// Addresses are those that its status says it has.
	Addresses []AddressStatus
}

// AddressStatus is an address of a Service, as this node announces it.
type AddressStatus struct {
	Addr netip.Addr
	// Pool is the one that it is in; empty if it is in none.
	Pool string
	// Stage is how far its announcement by BGP has come.
	Stage Stage
	// Route is what is announced for it; unset if withdrawn.
	Route netip.Prefix
	// Peers are the names of the peers to which; nil is all.
	Peers []string
	// Flat: this node may hold it on a flat layer 2.
	Flat bool
	// Since is when the stage was reached.
	Since time.Time
	// Reason is why it is not announced; empty if it is, in some way.
	Reason string
	// Err is what stands in the way of the stage; it is tried again.
	Err error
}

// PoolStatus is a pool as this node uses it, and how many addresses in it Services have.
type PoolStatus struct {
	// Name is the pool's; empty for the addresses that are in no pool.
	Name string
	// Err is why the pool, or its latest change, cannot be used.
	Err error
	// Announced and Draining are those in that [Stage], Withdrawn the others.
	Announced, Draining, Withdrawn int
	// Flat is how many this node may hold on a flat layer 2.
	Flat int
}

// Counts is how everything stands in short.
type Counts struct {
	// Services is how many are of type LoadBalancer and Herald's.
	Services int
	// Routes is how many prefixes are announced, draining ones included.
	Routes int
	// Failing is how many prefixes the router would not take, or give back.
	Failing int
	// Pools are those that this node has been told of, by name.
	Pools []PoolStatus
}

// Services tells of those of type LoadBalancer that are Herald's, by key.
func (a *Announcer) Services() []ServiceStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []ServiceStatus
	for _, key := range slices.Sorted(maps.Keys(a.services)) {
		b := a.services[key]
		if !b.ours {
			continue
		}
		one := ServiceStatus{Key: key, Origin: b.wants.origin}
		for _, x := range b.addresses {
			one.Addresses = append(one.Addresses, a.describe(x, b))
		}
		out = append(out, one)
	}
	return out
}

// Changes counts what may have changed what [Announcer.Addresses] tells.
func (a *Announcer) Changes() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

// Addresses are those that Services have, in order, each as the oldest that has it stands. Nothing is announced or
// withdrawn while they are told.
func (a *Announcer) Addresses() iter.Seq[AddressStatus] {
	return func(yield func(AddressStatus) bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.addresses.Ascend(func(x *address) bool { return len(x.claims) == 0 || yield(a.describe(x, x.claims[0])) })
	}
}

// describe tells how an address of a Service stands.
func (a *Announcer) describe(x *address, b *backing) AddressStatus {
	out := AddressStatus{Addr: x.addr, Pool: x.poolName(), Since: x.since}
	if !x.served(b) {
		out.Reason = fmt.Sprintf("%s has it, too, is older and does not share it", x.claims[0].key)
		return out
	}
	if !a.synced {
		out.Reason = "not everything has been heard from the Kubernetes API yet"
		return out
	}
	out.Stage, out.Flat = x.stage(), x.flat != nil
	r := x.route
	if r == nil && len(x.parting) > 0 {
		r = x.parting[len(x.parting)-1].route
	}
	if r != nil {
		out.Route, out.Err = r.prefix, r.err
		out.Peers = r.terms.peers
	}
	if out.Stage == Announced {
		return out
	}
	route, flat := a.mayAnnounce(x)
	switch {
	case out.Flat && x.pool.bgp == nil:
	case x.pool != nil && x.pool.bgp == nil && x.pool.arp != nil:
		out.Reason = flat.Reason
	default:
		out.Reason = route.Reason
	}
	return out
}

// Counts counts.
func (a *Announcer) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Counts{Routes: len(a.live), Failing: len(a.failing)}
	for _, b := range a.services {
		if b.ours {
			out.Services++
		}
	}
	pools := make(map[string]*PoolStatus)
	for name, p := range a.pools {
		pools[name] = &PoolStatus{Name: name, Err: p.err}
	}
	if a.synced {
		a.addresses.Ascend(func(x *address) bool {
			name := x.poolName()
			if pools[name] == nil {
				pools[name] = &PoolStatus{Name: name}
			}
			pools[name].count(x)
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		out.Pools = append(out.Pools, *pools[name])
	}
	return out
}

func (p *PoolStatus) count(x *address) {
	switch x.stage() {
	case Announced:
		p.Announced++
	case Draining:
		p.Draining++
	default:
		p.Withdrawn++
	}
	if x.flat != nil {
		p.Flat++
	}
}

// poolName is that of the pool that an address is in; empty if it is in none.
func (x *address) poolName() string {
	if x.pool == nil {
		return ""
	}
	return x.pool.name
}
