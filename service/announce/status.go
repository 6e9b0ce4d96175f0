package announce

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/herald-vip/herald/bgp/gracefulshutdown"
	"github.com/herald-vip/herald/service"
)

// ServiceStatus is the state of a Service.
type ServiceStatus struct {
	// Name is namespace/name.
	Name string
	// Origin is the tenant's Service that it was derived from; empty if it was not.
	Origin service.Origin
	// Addresses are the addresses in its status.
	Addresses []AddressStatus
}

// AddressStatus is the state of an address of a Service on this node. Its JSON is part of the
// output of `herald status --services -o json`.
type AddressStatus struct {
	Address netip.Addr `json:"address"`
	// Pool is the pool that contains it; empty if none does.
	Pool string `json:"pool,omitempty"`
	// Stage is the stage of its BGP announcement: withdrawn, announced or draining. Since is when it was reached.
	Stage gracefulshutdown.Stage `json:"stage"`
	Since time.Time              `json:"since,omitzero"`
	// Route is the announced prefix; unset if withdrawn.
	Route netip.Prefix `json:"route,omitzero"`
	// Peers are the names of the peers advertised to; nil means all.
	Peers []string `json:"peers,omitempty"`
	// Flat reports that this node may hold it on a flat layer 2.
	Flat bool `json:"flat,omitempty"`
	// Reason says why it is not announced; empty if it is announced by BGP or Flat.
	Reason string `json:"reason,omitempty"`
	// Error says what prevents the stage. The announcer retries.
	Error string `json:"error,omitempty"`
}

// PoolStatus is the state of a pool on this node. Its JSON is part of the output of `herald status -o json`.
type PoolStatus struct {
	// Name is the pool's name; empty for the addresses outside all pools.
	Name string `json:"name"`
	// Error says why the latest version of the pool is invalid.
	Error string `json:"error,omitempty"`
	// Announced, Draining and Withdrawn count the addresses of Services by the stage of their announcement by BGP.
	Announced int `json:"announced"`
	Draining  int `json:"draining"`
	Withdrawn int `json:"withdrawn"`
	// Flat counts the addresses that this node may hold on a flat layer 2.
	Flat int `json:"flat"`
}

// Counts is a summary of the announcer's state. Its JSON is part of the output of `herald status -o json`.
type Counts struct {
	// Total counts Herald's Services of type LoadBalancer.
	Total int `json:"total"`
	// Routes counts the announced prefixes, draining ones included.
	Routes int `json:"routes"`
	// Failing counts the prefixes that the BGP speaker refuses to announce or to withdraw.
	Failing int `json:"failing"`
	// Pools are the pools in the API, sorted by name.
	Pools []PoolStatus `json:"-"`
}

// Services returns Herald's Services of type LoadBalancer, sorted by key.
func (a *Announcer) Services() []ServiceStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []ServiceStatus
	for _, key := range slices.Sorted(maps.Keys(a.services)) {
		b := a.services[key]
		if !b.ours {
			continue
		}
		status := ServiceStatus{Name: key, Origin: b.wants.origin}
		for _, x := range b.addresses {
			status.Addresses = append(status.Addresses, a.describe(x, b))
		}
		out = append(out, status)
	}
	return out
}

// Changes returns a counter that increases whenever the result of [Announcer.Addresses] may have changed.
func (a *Announcer) Changes() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

// Addresses iterates over the addresses of Services, in order. A shared address has the status of the oldest Service. The
// iteration holds the lock: nothing is announced or withdrawn meanwhile.
func (a *Announcer) Addresses() iter.Seq[AddressStatus] {
	return func(yield func(AddressStatus) bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.addresses.Ascend(func(x *address) bool { return len(x.claims) == 0 || yield(a.describe(x, x.claims[0])) })
	}
}

// describe returns the status of an address of a Service.
func (a *Announcer) describe(x *address, b *backing) AddressStatus {
	out := AddressStatus{Address: x.addr, Pool: x.poolName(), Stage: gracefulshutdown.Withdrawn, Since: x.since}
	if !x.served(b) {
		out.Reason = fmt.Sprintf("the older Service %s has it and does not share it", x.claims[0].key)
		return out
	}
	if !a.synced {
		out.Reason = "the Kubernetes API has not sent all objects yet"
		return out
	}
	out.Stage, out.Flat = x.stage(), x.flat != nil
	r := x.route
	if r == nil && len(x.stale) > 0 {
		r = x.stale[len(x.stale)-1].route
	}
	if r != nil {
		out.Route, out.Error = r.prefix, message(r.err)
		out.Peers = r.export.peers
	}
	if out.Stage == gracefulshutdown.Announced {
		return out
	}
	byBGP, flat := a.mayAnnounce(x)
	switch {
	case out.Flat && x.pool.bgp == nil:
	case x.pool != nil && x.pool.bgp == nil && x.pool.arp != nil:
		out.Reason = flat.Reason
	default:
		out.Reason = byBGP.Reason
	}
	return out
}

// Counts returns a summary.
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

// poolName returns the name of the address's pool; empty if it is in no pool.
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
