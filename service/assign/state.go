package assign

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/kube"
	"github.com/herald-vip/herald/service/pool"
)

// state is the assignments of addresses to Services, and the progress of writing them. It
// has no clock and sends nothing. It is not safe for concurrent use.
type state struct {
	scope service.Scope

	addresses  *pool.Allocator
	pools      *pools
	namespaces map[string]labels.Set
	nodes      *nodes
	events     *rate.Limiter                 // for events about announcing nodes
	entries    map[string]*entry             // by the key of the Service
	vips       map[string][]v1alpha1.NodeVIP // nodes' own VIPs
	reserved   map[netip.Addr]pool.Claim     // the claims that keep them from Services
	unreserved bool                          // vips have changed, or an address has become free

	open    bool            // all objects are known and adopted
	changed map[string]bool // Services to decide
	refused map[string]bool // Services with unmet requests
	freed   bool            // a refused Service may succeed now
	waiting []string        // Services with a status to write, in order of discovery
}

// entry is one Service.
type entry struct {
	service *corev1.Service // the newest known version
	claim   pool.Claim      // the claim that holds its addresses
	refusal *pool.Refusal   // why its request is not met
	// leaving are addresses that it has lost, but that its status still has. A pending write cannot add others: that
	// would need a change of the Service, after which a write for its older version fails.
	leaving map[netip.Addr]pool.Claim
	delivery
}

func newState(o Options) *state {
	return &state{
		scope: o.Scope, addresses: pool.New(), nodes: newNodes(),
		pools: &pools{objects: make(map[string]*v1alpha1.AddressPool), changed: true, busy: make(map[string]bool)}, events: rate.NewLimiter(eventsAgain, mostEvents),
		namespaces: make(map[string]labels.Set), entries: make(map[string]*entry),
		changed: make(map[string]bool), refused: make(map[string]bool),
		vips: make(map[string][]v1alpha1.NodeVIP), reserved: make(map[netip.Addr]pool.Claim),
	}
}

// count returns the number of Herald's Services, and the number with an unmet
// request, by the reason in their condition.
func (st *state) count() (services int, refused map[string]int) {
	refused = make(map[string]int)
	for key, e := range st.entries {
		if !st.ours(e.service) {
			continue
		}
		services++
		if c := st.condition(key, e); c.Status != metav1.ConditionTrue {
			refused[c.Reason]++
		}
	}
	return services, refused
}

func (st *state) ours(s *corev1.Service) bool { return st.scope.Ours(s) }

// setService handles a new or changed Service.
func (st *state) setService(s *corev1.Service, now time.Time) {
	key := kube.Key(s)
	e := st.entries[key]
	if e != nil && e.service.UID != s.UID {
		st.remove(key)
		e = nil
	}
	if e == nil {
		if !st.ours(s) && !hasCondition(s) && len(service.StatusAddresses(s)) == 0 {
			return
		}
		e = &entry{service: s}
		st.entries[key] = e
	}
	if e.service.ResourceVersion != s.ResourceVersion {
		e.observeVersion(s, now)
	}
	e.service = s
	st.changed[key] = true
}

// deleteService handles the deletion of a Service.
func (st *state) deleteService(s *corev1.Service, _ time.Time) {
	if st.entries[kube.Key(s)] != nil {
		st.remove(kube.Key(s))
	}
}

// remove frees the addresses of a deleted Service.
func (st *state) remove(key string) {
	st.freeLeaving(st.entries[key])
	st.addresses.Release(key)
	delete(st.entries, key)
	delete(st.changed, key)
	delete(st.refused, key)
	st.freed = true
}

func (st *state) setNamespace(n *corev1.Namespace, _ time.Time) {
	st.namespaces[n.Name] = n.Labels
	st.freed = true // pools may select it now
}

func (st *state) deleteNamespace(n *corev1.Namespace, _ time.Time) { delete(st.namespaces, n.Name) }

func (st *state) setPool(p *v1alpha1.AddressPool, _ time.Time) { st.pools.set(p) }

func (st *state) deletePool(p *v1alpha1.AddressPool, _ time.Time) { st.pools.remove(p.Name) }

// setVIPs records the VIPs of a node's own file. They stay while the node is NotReady: it may answer for them.
func (st *state) setVIPs(node string, list []v1alpha1.NodeVIP) {
	if st.vips[node] = list; len(list) == 0 {
		delete(st.vips, node)
	}
	st.unreserved = true
}

// reserve keeps the addresses of nodes' VIPs from Services. A Service that has one already keeps it, and its condition
// reports that: taking it away would break the connections of a Service that works, because of one file.
func (st *state) reserve() {
	if !st.unreserved {
		return
	}
	st.unreserved = false
	claims := make(map[netip.Addr]pool.Claim)
	for addr := range st.reserved {
		claims[addr] = pool.Claim{}
	}
	for _, node := range slices.Sorted(maps.Keys(st.vips)) {
		for _, v := range st.vips[node] {
			if addr, err := netip.ParseAddr(v.Address); err == nil && claims[addr].Key == "" {
				key := fmt.Sprintf("VIP %s (%s) in the file of node %s", v.Name, addr, node)
				claims[addr] = pool.Claim{Key: key, Families: []pool.Family{pool.FamilyOf(addr)}}
			}
		}
	}
	for addr, claim := range claims {
		before := st.reserved[addr]
		if before.Key == claim.Key && len(st.addresses.Addresses(claim.Key)) > 0 {
			continue
		}
		st.addresses.Release(before.Key)
		st.reserved[addr] = claim
		for key := range st.entries {
			if slices.Contains(st.addresses.Addresses(key), addr) {
				st.changed[key] = true // its condition names the VIP
			}
		}
		if claim.Key == "" {
			st.freed = true
			delete(st.reserved, addr)
			continue
		}
		_ = st.addresses.Adopt(claim, []netip.Addr{addr})
	}
}

// adopt adopts the addresses of all Services, oldest first.
func (st *state) adopt() {
	st.replacePools()
	for _, key := range st.byAge(maps.Keys(st.entries)) {
		e := st.entries[key]
		e.claim, _ = st.claimOf(e.service)
		// Addresses of other Services are given up in decide.
		_ = st.addresses.Adopt(e.claim, service.StatusAddresses(e.service))
	}
	for key, e := range st.entries {
		st.keepLeaving(key, e, e.claim, nil)
	}
	st.open = true
}

// byAge orders Services by age, then by name.
func (st *state) byAge(keys func(func(string) bool)) []string {
	return slices.SortedFunc(keys, func(a, b string) int {
		x, y := st.entries[a].service, st.entries[b].service
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(a, b))
	})
}

// assign decides all changed Services, then the refused ones if addresses have become free.
func (st *state) assign() {
	if !st.open {
		st.adopt()
	}
	st.replacePools()
	st.reserve()
	for len(st.changed) > 0 || st.freed {
		if st.unreserved = st.unreserved || st.freed; len(st.changed) == 0 {
			st.freed = false
			maps.Copy(st.changed, st.refused)
		}
		keys := st.byAge(maps.Keys(st.changed))
		clear(st.changed)
		for _, key := range keys {
			st.reserve()
			st.decide(key, st.entries[key])
			st.unreserved = st.unreserved || st.freed
		}
	}
}

// replacePools passes changed pools to the allocator and marks all Services as changed.
func (st *state) replacePools() {
	if !st.pools.compile() {
		return
	}
	st.pools.stale = true
	if err := st.addresses.Replace(st.pools.inForce); err != nil {
		for name := range st.pools.objects { // all report the error; the previous pools stay in force until one is changed
			st.pools.faults[name] = fault{reasonInvalid, err.Error()}
		}
		return
	}
	for key := range st.entries {
		st.changed[key] = true
	}
}

// claimOf returns the claim of a Service, including the pools that it may use.
func (st *state) claimOf(s *corev1.Service) (pool.Claim, error) {
	c, err := st.scope.ClaimOf(s)
	c.SelectedBy = func(name string) bool { return st.pools.selects(name, s, st.namespaces[s.Namespace]) }
	return c, err
}

// decide assigns the requested addresses to a Service, as far as possible.
func (st *state) decide(key string, e *entry) {
	before, held, leaving := st.held(key, e), e.claim, e.leaving
	st.freeLeaving(e)
	claim, err := st.claimOf(e.service)
	switch {
	case !st.ours(e.service) && hasCondition(e.service): // it was Herald's before, and loses its addresses
		st.addresses.Release(key)
		err = nil
	case !st.ours(e.service): // its addresses are reserved, so that no other Service gets them
		_ = st.addresses.Adopt(claim, service.StatusAddresses(e.service))
		err = nil
	case err != nil, e.service.DeletionTimestamp != nil: // it keeps its addresses, with its new ports and sharing key
		_ = st.addresses.Adopt(claim, st.addresses.Addresses(key))
	default:
		_, err = st.addresses.Assign(claim)
	}
	e.claim, e.refusal = claim, nil
	errors.As(err, &e.refusal)
	st.keepLeaving(key, e, held, leaving)

	after := st.held(key, e)
	if len(before) > 0 && !sameSharing(held, e.claim) || slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(after, a) }) {
		st.freed = true
	}
	if !slices.Equal(before, after) {
		st.pools.stale = true
	}
	delete(st.refused, key)
	unmet := e.refusal != nil || len(st.addresses.Addresses(key)) < len(e.claim.Families)
	if unmet && st.ours(e.service) && e.service.DeletionTimestamp == nil {
		st.refused[key] = true
	}
	current := !st.ours(e.service) || e.service.DeletionTimestamp != nil || sameCondition(announcedOf(e.service), st.announced(key))
	switch {
	case st.differs(key, e):
		st.enqueue(key, e)
	case !current: // its announcing nodes have changed
		if !e.awaiting {
			e.awaiting = true
			st.nodes.waiting = append(st.nodes.waiting, key)
		}
	default:
		e.waiting, e.awaiting, e.notBefore = false, false, time.Time{}
		if !st.ours(e.service) && len(after) == 0 && !e.busy {
			delete(st.entries, key)
		}
	}
}

// held returns all addresses that a Service blocks: its own and the leaving ones.
func (st *state) held(key string, e *entry) []netip.Addr {
	return append(st.addresses.Addresses(key), slices.SortedFunc(maps.Keys(e.leaving), netip.Addr.Compare)...)
}

// keepLeaving blocks addresses that a Service has lost while the server may still show them
// in its status. It blocks them with the sharing key and policy of the claim old, and with
// the ports of both claims. before are the addresses that were leaving already.
func (st *state) keepLeaving(key string, e *entry, old pool.Claim, before map[netip.Addr]pool.Claim) {
	held := st.addresses.Addresses(key)
	for _, addr := range service.StatusAddresses(e.service) {
		if _, twice := e.leaving[addr]; twice || slices.Contains(held, addr) {
			continue
		}
		c, known := before[addr]
		if !known {
			c = pool.Claim{
				Key: key + ", which is releasing " + addr.String(), Families: []pool.Family{pool.FamilyOf(addr)},
				Share: old.Share, Policy: old.Policy, Ports: old.Ports,
			}
		}
		with := c
		with.Ports = slices.Concat(c.Ports, e.claim.Ports)
		if err := st.addresses.Adopt(with, []netip.Addr{addr}); err != nil {
			if err := st.addresses.Adopt(c, []netip.Addr{addr}); err != nil {
				continue // it belongs to another Service
			}
		}
		if e.leaving == nil {
			e.leaving = make(map[netip.Addr]pool.Claim)
		}
		e.leaving[addr] = c
	}
}

// freeLeaving frees the addresses that keepLeaving blocks.
func (st *state) freeLeaving(e *entry) {
	for _, c := range e.leaving {
		st.addresses.Release(c.Key)
	}
	e.leaving = nil
}

// sameSharing reports whether two claims exclude the same claims from sharing.
func sameSharing(a, b pool.Claim) bool {
	return a.Share == b.Share && a.Policy == b.Policy && reflect.DeepEqual(a.Ports, b.Ports)
}
