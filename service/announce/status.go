package announce

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/tenant"
)

// ServiceStatus is one Service.
type ServiceStatus struct {
	// Name is namespace/name.
	Name string
	// Origin is the tenant's Service that it was derived from; empty if it was not.
	Origin tenant.Origin
	// Addresses are those in its status.
	Addresses []AddressStatus
}

// AddressStatus is an address of a Service, as this node announces it. Its JSON is part of what
// `herald status --services -o json` prints.
type AddressStatus struct {
	Address netip.Addr `json:"address"`
	// Pool is the pool that contains it; empty if none does.
	Pool string `json:"pool,omitempty"`
	// Stage is that of its announcement by BGP: withdrawn, announced or draining. Since is when it was reached.
	Stage gracefulshutdown.Stage `json:"stage"`
	Since time.Time              `json:"since,omitzero"`
	// Route is the prefix that is announced for it; unset if withdrawn.
	Route netip.Prefix `json:"route,omitzero"`
	// Peers are the names of the peers that get the route; nil is all.
	Peers []string `json:"peers,omitempty"`
	// Flat reports that this node may hold it on a flat layer 2.
	Flat bool `json:"flat,omitempty"`
	// Reason says why it is not announced; empty if it is, in some way.
	Reason string `json:"reason,omitempty"`
	// Error says why it falls short of the stage. The announcer tries again.
	Error string `json:"error,omitempty"`
}

// PoolStatus is a pool as this node uses it. Its JSON is part of what `herald status -o json` prints.
type PoolStatus struct {
	// Name is the pool's; empty for the addresses that are in no pool.
	Name string `json:"name"`
	// Error says why the pool, or its latest change, cannot be used.
	Error string `json:"error,omitempty"`
	// Announced, Draining and Withdrawn count the addresses of Services by the stage of their announcement by BGP.
	Announced int `json:"announced"`
	Draining  int `json:"draining"`
	Withdrawn int `json:"withdrawn"`
	// Flat counts the addresses that this node may hold on a flat layer 2.
	Flat int `json:"flat"`
}

// Counts counts what is announced for Services. Its JSON is part of what `herald status -o json` prints.
type Counts struct {
	// Total counts the Services of type LoadBalancer that are Herald's.
	Total int `json:"total"`
	// Routes counts the prefixes that are announced, draining ones included.
	Routes int `json:"routes"`
	// Failing counts the prefixes that the BGP speaker refuses to announce or to withdraw.
	Failing int `json:"failing"`
	// Pools are the pools in the API, by name.
	Pools []PoolStatus `json:"-"`
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
		one := ServiceStatus{Name: key, Origin: b.wants.origin}
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
	out := AddressStatus{Address: x.addr, Pool: x.poolName(), Stage: gracefulshutdown.Withdrawn, Since: x.since}
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
		out.Route, out.Error = r.prefix, message(r.err)
		out.Peers = r.terms.peers
	}
	if out.Stage == gracefulshutdown.Announced {
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
			out.Total++
		}
	}
	pools := make(map[string]*PoolStatus)
	for name, p := range a.pools {
		pools[name] = &PoolStatus{Name: name, Error: message(p.err)}
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
	case gracefulshutdown.Announced:
		p.Announced++
	case gracefulshutdown.Draining:
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

// message returns the text of err, empty if it is nil.
func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
