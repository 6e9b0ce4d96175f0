package assign

import (
	"cmp"
	"errors"
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

// state knows who has which address, and what the server has been told of it. It has
// no clock and sends nothing. It is not safe for concurrent use.
type state struct {
	scope service.Scope

	addresses  *pool.Allocator
	pools      *pools
	namespaces map[string]labels.Set
	nodes      *nodes
	events     *rate.Limiter     // of who announces
	entries    map[string]*entry // by the key of the Service

	open    bool            // all there was is known and taken over
	changed map[string]bool // who is to be decided about
	refused map[string]bool // who lacks something
	freed   bool            // those may be given it now
	waiting []string        // whose status is to be written, in the order of discovery
}

// entry is one Service.
type entry struct {
	service *corev1.Service // the newest version that is known
	claim   pool.Claim      // on which it has its addresses
	refusal *pool.Refusal   // why it has not got what it asks for
	// leaving are addresses that it has no more, but has by its status. A write that
	// is under way cannot add others: the Service would have to change for that, and
	// a write on top of its older version fails.
	leaving map[netip.Addr]pool.Claim
	delivery
}

func newState(o Options) *state {
	return &state{
		scope: o.Scope, addresses: pool.New(), pools: newPools(),
		nodes: newNodes(), events: rate.NewLimiter(eventsAgain, mostEvents),
		namespaces: make(map[string]labels.Set), entries: make(map[string]*entry),
		changed: make(map[string]bool), refused: make(map[string]bool),
	}
}

// count is how many Services are Herald's, and how many of these lack something, by
// the reason in their condition.
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

// setService is told of a Service that is new or has changed.
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

// deleteService is told of a Service that is gone.
func (st *state) deleteService(s *corev1.Service, _ time.Time) {
	if st.entries[kube.Key(s)] != nil {
		st.remove(kube.Key(s))
	}
}

// remove makes the addresses of a Service that is gone free.
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

// adopt takes over all addresses that Services have, those of the oldest first.
func (st *state) adopt() {
	st.replacePools()
	for _, key := range st.byAge(maps.Keys(st.entries)) {
		e := st.entries[key]
		e.claim, _ = st.claimOf(e.service)
		// What is another's is given up when it is decided about.
		_ = st.addresses.Adopt(e.claim, service.StatusAddresses(e.service))
	}
	for key, e := range st.entries {
		st.keepLeaving(key, e, e.claim, nil)
	}
	st.open = true
}

// byAge orders Services by their age, those of the same second by name.
func (st *state) byAge(keys func(func(string) bool)) []string {
	return slices.SortedFunc(keys, func(a, b string) int {
		x, y := st.entries[a].service, st.entries[b].service
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(a, b))
	})
}

// assign decides about all who have changed, and then about who may be helped by
// what became free.
func (st *state) assign() {
	if !st.open {
		st.adopt()
	}
	st.replacePools()
	for len(st.changed) > 0 || st.freed {
		if len(st.changed) == 0 {
			st.freed = false
			maps.Copy(st.changed, st.refused)
		}
		now := st.byAge(maps.Keys(st.changed))
		clear(st.changed)
		for _, key := range now {
			st.decide(key, st.entries[key])
		}
	}
}

// replacePools has addresses given from the pools as they are now, and everybody
// decided about if these have changed.
func (st *state) replacePools() {
	if !st.pools.compile() {
		return
	}
	if err := st.addresses.Replace(st.pools.inForce); err != nil {
		st.pools.refuse(err)
		return
	}
	for key := range st.entries {
		st.changed[key] = true
	}
	st.pools.stale = true
}

// claimOf is what a Service asks for, and of which pools.
func (st *state) claimOf(s *corev1.Service) (pool.Claim, error) {
	c, err := st.scope.ClaimOf(s)
	c.SelectedBy = func(name string) bool { return st.pools.selects(name, s, st.namespaces[s.Namespace]) }
	return c, err
}

// decide gives a Service what it asks for as far as that can be.
func (st *state) decide(key string, e *entry) {
	before, held, leaving := st.held(key, e), e.claim, e.leaving
	st.freeLeaving(e)
	claim, err := st.claimOf(e.service)
	switch {
	case !st.ours(e.service):
		st.keepForeign(key, e, claim)
		err = nil
	case err != nil: // it keeps what it has, on its new terms
		_ = st.addresses.Adopt(claim, st.addresses.Addresses(key))
	case e.service.DeletionTimestamp != nil: // so does it until it is gone
		_ = st.addresses.Adopt(claim, st.addresses.Addresses(key))
	default:
		_, err = st.addresses.Assign(claim)
	}
	e.claim, e.refusal = claim, nil
	errors.As(err, &e.refusal)
	st.keepLeaving(key, e, held, leaving)

	after := st.held(key, e)
	if len(before) > 0 && !sameTerms(held, e.claim) || slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(after, a) }) {
		st.freed = true
	}
	if !slices.Equal(before, after) {
		st.pools.stale = true
	}
	delete(st.refused, key)
	if st.lacks(key, e) {
		st.refused[key] = true
	}
	told := !st.ours(e.service) || e.service.DeletionTimestamp != nil || sameCondition(announcedOf(e.service), st.announced(key))
	switch {
	case st.differs(key, e):
		st.enqueue(key, e)
	case !told:
		st.await(key, e)
	default:
		e.waiting, e.awaiting, e.patience = false, false, time.Time{}
		if !st.ours(e.service) && len(after) == 0 && !e.busy {
			delete(st.entries, key)
		}
	}
}

// keepForeign is for a Service that is not Herald's. If it was, it has no addresses any
// more. If it never was, nobody else is given those that it has all the same.
func (st *state) keepForeign(key string, e *entry, claim pool.Claim) {
	if hasCondition(e.service) {
		st.addresses.Release(key)
		return
	}
	_ = st.addresses.Adopt(claim, service.StatusAddresses(e.service))
}

// lacks reports whether a Service of Herald's may be given more some day.
func (st *state) lacks(key string, e *entry) bool {
	return st.ours(e.service) && e.service.DeletionTimestamp == nil &&
		(e.refusal != nil || len(st.addresses.Addresses(key)) < len(e.claim.Families))
}

// held are all addresses that nobody else may have because of a Service.
func (st *state) held(key string, e *entry) []netip.Addr {
	return append(st.addresses.Addresses(key), slices.SortedFunc(maps.Keys(e.leaving), netip.Addr.Compare)...)
}

// keepLeaving keeps what a Service has lost for as long as the server may say that it has
// it, on the terms on which it had it, and with the ports that it has now as well.
// Some were leaving before.
func (st *state) keepLeaving(key string, e *entry, terms pool.Claim, before map[netip.Addr]pool.Claim) {
	has := st.addresses.Addresses(key)
	for _, addr := range service.StatusAddresses(e.service) {
		if _, twice := e.leaving[addr]; twice || slices.Contains(has, addr) {
			continue
		}
		c, known := before[addr]
		if !known {
			c = pool.Claim{
				Key: key + ", which is leaving " + addr.String(), Families: []pool.Family{pool.FamilyOf(addr)},
				Share: terms.Share, Policy: terms.Policy, Ports: terms.Ports,
			}
		}
		with := c
		with.Ports = slices.Concat(c.Ports, e.claim.Ports)
		if err := st.addresses.Adopt(with, []netip.Addr{addr}); err != nil {
			if err := st.addresses.Adopt(c, []netip.Addr{addr}); err != nil {
				continue // another's, who keeps it
			}
		}
		if e.leaving == nil {
			e.leaving = make(map[netip.Addr]pool.Claim)
		}
		e.leaving[addr] = c
	}
}

// freeLeaving frees what keepLeaving keeps.
func (st *state) freeLeaving(e *entry) {
	for _, c := range e.leaving {
		st.addresses.Release(c.Key)
	}
	e.leaving = nil
}

// sameTerms reports whether two claims keep others from the same.
func sameTerms(a, b pool.Claim) bool {
	return a.Share == b.Share && a.Policy == b.Policy && reflect.DeepEqual(a.Ports, b.Ports)
}
