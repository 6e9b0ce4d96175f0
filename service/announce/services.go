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
)

// backing is a Service of Herald's, its endpoints, or both. Endpoints may arrive before their Service.
type backing struct {
	key       string
	ours      bool
	wants     wants
	addresses []*address
	slices    []slice
}

// wants is the fields of a Service that decide where its addresses are announced, and that logs and status name.
type wants struct {
	created time.Time
	local   bool // externalTrafficPolicy
	// share and policy must be equal for Services that share an address. An empty share means that it shares with none.
	share, policy string
	addrs         []netip.Addr // from its status, sorted
	prefers       []string     // preferred holders on a flat layer 2, most preferred first
	origin        service.Origin
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

// older compares two Services by age, then key. The older one has precedence.
func older(x, y *backing) int {
	return cmp.Or(x.wants.created.Compare(y.wants.created), cmp.Compare(x.key, y.key))
}

// SetService handles a new or changed Service. It needs the Service's name, namespace, labels, annotations, owner,
// creation and deletion timestamps, spec, and status.loadBalancer.
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

// DeleteService handles the deletion of a Service, given as namespace/name.
func (a *Announcer) DeleteService(key string) {
	a.event(func() { a.dismiss(key) })
}

// dismiss forgets a Service, except its endpoints.
func (a *Announcer) dismiss(key string) {
	b := a.services[key]
	if b == nil || !b.ours {
		return
	}
	a.release(b)
	a.decideAffected()
	a.forget(b)
}

// release removes the addresses of a Service.
func (a *Announcer) release(b *backing) {
	for _, x := range b.addresses {
		x.claims = slices.DeleteFunc(x.claims, func(o *backing) bool { return o == b })
	}
	a.affected = append(a.affected, b.addresses...)
	b.ours, b.wants, b.addresses = false, wants{}, nil
}

// SetSlice handles a new or changed EndpointSlice. It needs the slice's name,
// namespace, labels and address type, and the conditions and nodes of the endpoints.
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

// DeleteSlice handles the deletion of an EndpointSlice, given as namespace/name.
func (a *Announcer) DeleteSlice(key string) {
	a.event(func() { a.detach(key) })
}

// detach removes a slice from its Service.
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

// forget deletes a backing without Service and endpoints.
func (a *Announcer) forget(b *backing) {
	if !b.ours && len(b.slices) == 0 {
		delete(a.services, b.key)
	}
}

// wantsOf returns the relevant fields of a Service.
func wantsOf(s *corev1.Service, scope service.Scope) wants {
	w := wants{
		created: s.CreationTimestamp.Time,
		local:   s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		origin:  service.OriginOf(s),
		labels:  s.Labels,
	}
	if claim, err := scope.ClaimOf(s); err == nil { // a Service with an invalid claim does not share
		w.share, w.policy = claim.Share, claim.Policy
	}
	w.prefers = service.Prefers(s)
	w.addrs = service.StatusAddresses(s)
	slices.SortFunc(w.addrs, netip.Addr.Compare)
	w.addrs = slices.Clip(slices.Compact(w.addrs))
	return w
}
