package assign

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/kube"
	"github.com/herald-vip/herald/pool"
	"github.com/herald-vip/herald/service"
)

// ledger is who has which address, and what the server has been told of it. It has
// no clock and sends nothing. It is not safe for concurrent use.
type ledger struct {
	class     string
	isDefault bool

	addresses  *pool.Allocator
	pools      *pools
	namespaces map[string]labels.Set
	entries    map[string]*entry // by the key of the Service

	open    bool            // all there was is known and taken over
	changed map[string]bool // who is to be decided about
	refused map[string]bool // who lacks something
	freed   bool            // those may be given it now

	outbox
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

func newLedger(o Options) *ledger {
	return &ledger{
		class: o.Class, isDefault: o.Default, addresses: pool.New(), pools: newPools(),
		namespaces: make(map[string]labels.Set), entries: make(map[string]*entry),
		changed: make(map[string]bool), refused: make(map[string]bool), outbox: newOutbox(),
	}
}

// count is how many Services are Herald's, and how many of these lack something, by
// the reason in their condition.
func (l *ledger) count() (services int, refused map[string]int) {
	refused = make(map[string]int)
	for key, e := range l.entries {
		if !l.ours(e.service) {
			continue
		}
		services++
		if c := l.condition(key, e); c.Status != metav1.ConditionTrue {
			refused[c.Reason]++
		}
	}
	return services, refused
}

func (l *ledger) ours(s *corev1.Service) bool { return service.Ours(s, l.class, l.isDefault) }

// setService is told of a Service that is new or has changed.
func (l *ledger) setService(s *corev1.Service, now time.Time) {
	key := kube.Key(s)
	e := l.entries[key]
	if e != nil && e.service.UID != s.UID {
		l.remove(key)
		e = nil
	}
	if e == nil {
		if !l.ours(s) && !marked(s) && len(said(s)) == 0 {
			return
		}
		e = &entry{service: s}
		l.entries[key] = e
	}
	if e.service.ResourceVersion != s.ResourceVersion {
		e.notice(s, now)
	}
	e.service = s
	l.changed[key] = true
}

// deleteService is told of a Service that is gone.
func (l *ledger) deleteService(s *corev1.Service, _ time.Time) {
	if l.entries[kube.Key(s)] != nil {
		l.remove(kube.Key(s))
	}
}

// remove makes the addresses of a Service that is gone free.
func (l *ledger) remove(key string) {
	l.vacate(l.entries[key])
	l.addresses.Release(key)
	delete(l.entries, key)
	delete(l.changed, key)
	delete(l.refused, key)
	l.outbox.drop(key)
	l.freed = true
}

func (l *ledger) setNamespace(n *corev1.Namespace, _ time.Time) {
	l.namespaces[n.Name] = n.Labels
	l.freed = true // pools may select it now
}

func (l *ledger) deleteNamespace(n *corev1.Namespace, _ time.Time) { delete(l.namespaces, n.Name) }

func (l *ledger) setPool(p *v1alpha1.AddressPool, _ time.Time) { l.pools.set(p) }

func (l *ledger) deletePool(p *v1alpha1.AddressPool, _ time.Time) { l.pools.remove(p.Name) }

// adopt takes over all addresses that Services have, those of the oldest first.
func (l *ledger) adopt() {
	l.replacePools()
	for _, key := range l.byAge(maps.Keys(l.entries)) {
		e := l.entries[key]
		e.claim, _ = l.claimOf(e.service)
		// What is another's is given up when it is decided about.
		_, _ = l.addresses.Adopt(e.claim, said(e.service))
	}
	for key, e := range l.entries {
		l.hold(key, e, e.claim, nil)
	}
	l.open = true
}

// byAge orders Services by their age, those of the same second by name.
func (l *ledger) byAge(keys func(func(string) bool)) []string {
	return slices.SortedFunc(keys, func(a, b string) int {
		x, y := l.entries[a].service, l.entries[b].service
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(a, b))
	})
}

// settle decides about all who have changed, and then about who may be helped by
// what became free.
func (l *ledger) settle() {
	if !l.open {
		l.adopt()
	}
	l.replacePools()
	for len(l.changed) > 0 || l.freed {
		if len(l.changed) == 0 {
			l.freed = false
			maps.Copy(l.changed, l.refused)
		}
		now := l.byAge(maps.Keys(l.changed))
		clear(l.changed)
		for _, key := range now {
			l.decide(key, l.entries[key])
		}
	}
}

// replacePools has addresses given from the pools as they are now, and everybody
// decided about if these have changed.
func (l *ledger) replacePools() {
	if !l.pools.compile() {
		return
	}
	if _, err := l.addresses.Replace(l.pools.inForce); err != nil {
		l.pools.refuse(err)
		return
	}
	for key := range l.entries {
		l.changed[key] = true
	}
	l.pools.news = true
}

// claimOf is what a Service asks for, and of which pools.
func (l *ledger) claimOf(s *corev1.Service) (pool.Claim, error) {
	c, err := service.ClaimOf(s)
	c.SelectedBy = func(name string) bool { return l.pools.selects(name, s, l.namespaces[s.Namespace]) }
	return c, err
}

// decide gives a Service what it asks for as far as that can be.
func (l *ledger) decide(key string, e *entry) {
	before, held, leaving := l.held(key, e), e.claim, e.leaving
	l.vacate(e)
	claim, err := l.claimOf(e.service)
	switch {
	case !l.ours(e.service):
		l.dismiss(key, e, claim)
		err = nil
	case err != nil: // it keeps what it has, on its new terms
		_, _ = l.addresses.Adopt(claim, l.addresses.Addresses(key))
	case e.service.DeletionTimestamp != nil: // so does it until it is gone
		_, _ = l.addresses.Adopt(claim, l.addresses.Addresses(key))
	default:
		_, err = l.addresses.Assign(claim)
	}
	e.claim, e.refusal = claim, nil
	errors.As(err, &e.refusal)
	l.hold(key, e, held, leaving)

	after := l.held(key, e)
	if len(before) > 0 && !sameTerms(held, e.claim) || slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(after, a) }) {
		l.freed = true
	}
	if !slices.Equal(before, after) {
		l.pools.news = true
	}
	delete(l.refused, key)
	if l.lacks(key, e) {
		l.refused[key] = true
	}
	if l.differs(key, e) {
		l.outbox.put(key)
	} else {
		l.outbox.drop(key)
		if !l.ours(e.service) && len(after) == 0 && !e.busy {
			delete(l.entries, key)
		}
	}
}

// dismiss is for a Service that is not Herald's. If it was, it has no addresses any
// more. If it never was, nobody else is given those that it has all the same.
func (l *ledger) dismiss(key string, e *entry, claim pool.Claim) {
	if marked(e.service) {
		l.addresses.Release(key)
		return
	}
	_, _ = l.addresses.Adopt(claim, said(e.service))
}

// lacks reports whether a Service of Herald's may be given more some day.
func (l *ledger) lacks(key string, e *entry) bool {
	return l.ours(e.service) && e.service.DeletionTimestamp == nil &&
		(e.refusal != nil || len(l.addresses.Addresses(key)) < len(e.claim.Families))
}

// held are all addresses that nobody else may have because of a Service.
func (l *ledger) held(key string, e *entry) []netip.Addr {
	return append(l.addresses.Addresses(key), slices.SortedFunc(maps.Keys(e.leaving), netip.Addr.Compare)...)
}

// hold keeps what a Service has lost for as long as the server may say that it has
// it, on the terms on which it had it, and with the ports that it has now as well.
// Some were leaving before.
func (l *ledger) hold(key string, e *entry, terms pool.Claim, before map[netip.Addr]pool.Claim) {
	has := l.addresses.Addresses(key)
	for _, addr := range said(e.service) {
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
		if _, err := l.addresses.Adopt(with, []netip.Addr{addr}); err != nil {
			if _, err := l.addresses.Adopt(c, []netip.Addr{addr}); err != nil {
				continue // another's, who keeps it
			}
		}
		if e.leaving == nil {
			e.leaving = make(map[netip.Addr]pool.Claim)
		}
		e.leaving[addr] = c
	}
}

// vacate frees what hold keeps.
func (l *ledger) vacate(e *entry) {
	for _, c := range e.leaving {
		l.addresses.Release(c.Key)
	}
	e.leaving = nil
}

// sameTerms reports whether two claims keep others from the same.
func sameTerms(a, b pool.Claim) bool {
	return a.Share == b.Share && a.Policy == b.Policy && reflect.DeepEqual(a.Ports, b.Ports)
}
