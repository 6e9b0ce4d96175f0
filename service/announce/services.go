package announce

import (
	"cmp"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/tenant"
)

// backing is what is known by the name of a Service: what it asks for, if it is
// one of Herald's, and its endpoints, which may be heard of before it.
type backing struct {
	key       string
	ours      bool
	wants     wants
	addresses []*address // that it has
	slices    []slice
}

// wants is what of a Service decides where its addresses are announced, and who is said to have them.
type wants struct {
	created time.Time
	local   bool // externalTrafficPolicy
	// share and policy are the terms on which it has its addresses together with
	// others; without share, with nobody.
	share, policy string
	addrs         []netip.Addr // of its status, in order
	prefers       []string     // nodes that are to hold them on a flat layer 2, the first most
	origin        tenant.Origin
	labels        map[string]string
}

// slice is an EndpointSlice.
type slice struct {
	key string
	service.Endpoints
}

func (b *backing) endpoints() iter.Seq[service.Endpoints] {
	return func(yield func(service.Endpoints) bool) {
		for i := range b.slices {
			if !yield(b.slices[i].Endpoints) {
				return
			}
		}
	}
}

// older says whose claim to an address comes first.
func older(x, y *backing) int {
	return cmp.Or(x.wants.created.Compare(y.wants.created), cmp.Compare(x.key, y.key))
}

// SetService takes in a Service that is new or has changed. Of it are needed: its
// name, namespace, labels, annotations, owner, creation and deletion timestamps, its spec, and
// status.loadBalancer.
func (a *Announcer) SetService(s *corev1.Service) {
	if s == nil {
		return
	}
	key := s.Namespace + "/" + s.Name
	a.event(func() {
		if s.DeletionTimestamp != nil || !a.config.Scope.Ours(s) {
			a.dismiss(key)
			return
		}
		b := a.backing(key)
		next := wantsOf(s, a.config.Scope)
		if b.ours && reflect.DeepEqual(b.wants, next) {
			return
		}
		a.release(b)
		b.ours, b.wants = true, next
		for _, addr := range next.addrs {
			x, ok := a.addresses.Get(&address{addr: addr})
			if !ok {
				x = &address{addr: addr, pool: a.poolOf(addr)}
				a.addresses.ReplaceOrInsert(x)
			}
			i, _ := slices.BinarySearchFunc(x.claims, b, older)
			x.claims = slices.Insert(x.claims, i, b)
			b.addresses = append(b.addresses, x)
		}
		a.affected = append(a.affected, b.addresses...)
		a.decideAffected()
	})
}

// DeleteService takes in that a Service, namespace/name, is no more.
func (a *Announcer) DeleteService(key string) {
	a.event(func() { a.dismiss(key) })
}

// dismiss forgets a Service, but not its endpoints.
func (a *Announcer) dismiss(key string) {
	b := a.services[key]
	if b == nil || !b.ours {
		return
	}
	a.release(b)
	a.decideAffected()
	a.forget(b)
}

// release takes its addresses from a Service.
func (a *Announcer) release(b *backing) {
	for _, x := range b.addresses {
		x.claims = slices.DeleteFunc(x.claims, func(o *backing) bool { return o == b })
	}
	a.affected = append(a.affected, b.addresses...)
	b.ours, b.wants, b.addresses = false, wants{}, nil
}

// SetSlice takes in an EndpointSlice that is new or has changed. Of it are needed:
// its name, namespace and labels, the type of its addresses, and of the endpoints
// their conditions and nodes.
func (a *Announcer) SetSlice(s *discoveryv1.EndpointSlice) {
	if s == nil {
		return
	}
	key := s.Namespace + "/" + s.Name
	endpoints, ok := service.EndpointsOf(s)
	name := s.Labels[discoveryv1.LabelServiceName]
	if !ok || name == "" {
		a.DeleteSlice(key)
		return
	}
	owner := s.Namespace + "/" + name
	a.event(func() {
		if before, ok := a.owners[key]; ok && before != owner {
			a.detach(key)
		}
		b := a.backing(owner)
		i := slices.IndexFunc(b.slices, func(s slice) bool { return s.key == key })
		switch {
		case i < 0:
			b.slices = append(b.slices, slice{key, endpoints})
			a.owners[key] = owner
		case reflect.DeepEqual(b.slices[i].Endpoints, endpoints):
			return
		default:
			b.slices[i].Endpoints = endpoints
		}
		a.affected = append(a.affected, b.addresses...)
		a.decideAffected()
	})
}

// DeleteSlice takes in that an EndpointSlice, namespace/name, is no more.
func (a *Announcer) DeleteSlice(key string) {
	a.event(func() { a.detach(key) })
}

// detach takes a slice from the Service that it is of.
func (a *Announcer) detach(key string) {
	b := a.services[a.owners[key]]
	if b == nil {
		return
	}
	delete(a.owners, key)
	b.slices = slices.DeleteFunc(b.slices, func(s slice) bool { return s.key == key })
	a.affected = append(a.affected, b.addresses...)
	a.decideAffected()
	a.forget(b)
}

func (a *Announcer) backing(key string) *backing {
	b := a.services[key]
	if b == nil {
		b = &backing{key: key}
		a.services[key] = b
	}
	return b
}

// forget drops what nothing is known of any more.
func (a *Announcer) forget(b *backing) {
	if !b.ours && len(b.slices) == 0 {
		delete(a.services, b.key)
	}
}

// wantsOf reads a Service.
func wantsOf(s *corev1.Service, scope service.Scope) wants {
	w := wants{
		created: s.CreationTimestamp.Time,
		local:   s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		origin:  tenant.OriginOf(s),
		labels:  s.Labels,
	}
	if claim, err := scope.ClaimOf(s); err == nil { // who asks for nonsense shares with nobody
		w.share, w.policy = claim.Share, claim.Policy
	}
	w.prefers = service.Prefers(s)
	w.addrs = service.StatusAddresses(s)
	slices.SortFunc(w.addrs, netip.Addr.Compare)
	w.addrs = slices.Clip(slices.Compact(w.addrs))
	return w
}
