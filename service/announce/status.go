package announce

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
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

// Status is all that the announcer knows of Services, for people.
type Status struct {
	// Synced says whether everything has been heard from the API once.
	Synced bool
	// Draining is why everything is withdrawn on purpose; empty if it is not.
	Draining string
	// Services are those of type LoadBalancer that are Herald's, by key.
	Services []ServiceStatus
	// Pools are those that this node has been told of, by name.
	Pools []PoolStatus
}

// ServiceStatus is one Service.
type ServiceStatus struct {
	// Key is namespace/name.
	Key string
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

// PoolStatus is a pool as this node uses it.
type PoolStatus struct {
	Name string
	// Err is why the pool, or its latest change, cannot be used.
	Err error
}

// Counts is in short what [Status] tells, at a cost that does not grow with the
// number of Services.
type Counts struct {
	// Services is how many are of type LoadBalancer and Herald's.
	Services int
	// Routes is how many prefixes are announced, draining ones included.
	Routes int
	// Failing is how many prefixes the router would not take, or give back.
	Failing int
	// Addresses counts the addresses of Services, by pool.
	Addresses []PoolCounts
}

// PoolCounts counts the addresses in a pool that Services have.
type PoolCounts struct {
	// Pool is its name; empty for the addresses that are in no pool.
	Pool string
	// Announced and Draining are those in that [Stage], Withdrawn the others.
	Announced, Draining, Withdrawn int
	// Flat is how many this node may hold on a flat layer 2.
	Flat int
}

// Status tells how everything stands.
func (a *Announcer) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := Status{Synced: a.synced, Draining: a.drain.Reason()}
	for _, key := range slices.Sorted(maps.Keys(a.services)) {
		b := a.services[key]
		if !b.ours {
			continue
		}
		one := ServiceStatus{Key: key}
		for _, addr := range b.wants.addrs {
			if x, ok := a.addresses.Get(&address{addr: addr}); ok {
				one.Addresses = append(one.Addresses, a.describe(x, b))
			}
		}
		st.Services = append(st.Services, one)
	}
	st.Pools = a.poolStatus()
	return st
}

// Pools tells of the pools that this node has been told of, by name.
func (a *Announcer) Pools() []PoolStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.poolStatus()
}

func (a *Announcer) poolStatus() []PoolStatus {
	var out []PoolStatus
	for _, name := range slices.Sorted(maps.Keys(a.pools)) {
		out = append(out, PoolStatus{Name: name, Err: a.pools[name].err})
	}
	return out
}

// describe tells how an address of a Service stands.
func (a *Announcer) describe(x *address, b *backing) AddressStatus {
	out := AddressStatus{Addr: x.addr, Since: x.since}
	if x.pool != nil {
		out.Pool = x.pool.name
	}
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
	route, flat := a.mayAnnounce(x)
	switch {
	case out.Stage == Announced, out.Flat && x.pool.bgp == nil:
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
	return Counts{Services: a.tally.services, Routes: len(a.live), Failing: len(a.failing), Addresses: a.tally.sorted()}
}

// tally keeps the counts up to date.
type tally struct {
	services int
	pools    map[string]*PoolCounts
}

// bucket is where an address is counted.
type bucket struct {
	known bool
	pool  string
	stage Stage
	flat  bool
}

func newTally() tally { return tally{pools: make(map[string]*PoolCounts)} }

func (x *address) bucket() bucket {
	out := bucket{known: true, stage: x.stage(), flat: x.flat != nil}
	if x.pool != nil {
		out.pool = x.pool.name
	}
	return out
}

// count moves an address to a bucket.
func (t *tally) count(x *address, to bucket) {
	if x.counted != to {
		t.add(x.counted, -1)
		t.add(to, 1)
		x.counted = to
	}
}

func (t *tally) add(b bucket, n int) {
	if !b.known {
		return
	}
	p := t.pools[b.pool]
	if p == nil {
		p = &PoolCounts{Pool: b.pool}
		t.pools[b.pool] = p
	}
	switch b.stage {
	case Announced:
		p.Announced += n
	case Draining:
		p.Draining += n
	default:
		p.Withdrawn += n
	}
	if b.flat {
		p.Flat += n
	}
	if p.Announced+p.Draining+p.Withdrawn == 0 {
		delete(t.pools, b.pool)
	}
}

func (t *tally) sorted() []PoolCounts {
	var out []PoolCounts
	for _, name := range slices.Sorted(maps.Keys(t.pools)) {
		out = append(out, *t.pools[name])
	}
	return out
}
