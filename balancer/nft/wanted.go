package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/expr"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// wanted is what the table is for.
type wanted struct {
	services []balancer.Service
	buckets  map[string][]string // by bucketName: the chain of each one's backend
	taken    map[netip.AddrPort]string
	localnet map[string]bool
	masters  map[netip.Addr][]netip.Addr // by VIP
	open     map[netip.Addr]time.Duration
	counts   map[string]uint64 // of chains, so far
	outlive  time.Duration
	brief    []expr.Any // has a connection be forgotten that is not opened; nil if the kernel cannot
}

// base is what is there without any service.
func base() table {
	t := table{chains: baseChains(), sets: map[string]set{localnet: newSet(localnetKind)}}
	for _, f := range families {
		for name, k := range f.kinds() {
			t.sets[name] = newSet(k)
		}
	}
	return t
}

func newSet(k kind) set { return set{k, make(map[string]element)} }

// table describes what is wanted.
func (w wanted) table() table {
	t := base()
	for link := range w.localnet {
		t.sets[localnet].elements[linkKey(link)] = element{}
	}
	for place, service := range w.taken {
		t.sets[taken+familyOf(place.Addr()).version].elements[placeKey(place)] = element{comment: service}
	}
	for _, s := range w.services {
		w.service(t, s)
	}
	for vip, masters := range w.masters {
		f := familyOf(vip)
		t.chains[bridgeChain+dashed(vip)] = chain{rules: []ruleset.Rule{bridgeRule(vip)}}
		t.chains[masterChain+dashed(vip)] = chain{rules: masterRules(masters, w.brief)}
		for _, master := range masters {
			t.sets[bridged+f.version].elements[addrKey(vip, master)] = element{}
		}
		if lasts := w.open[vip]; lasts > 0 {
			t.sets[bridge+f.version].elements[addrKey(vip)] = element{chain: bridgeChain + dashed(vip), lasts: lasts}
		}
	}
	return t
}

func (w wanted) service(t table, s balancer.Service) {
	for _, f := range families {
		t.chains[serviceName(f, s.Name)] = chain{rules: []ruleset.Rule{serviceRule(f, s)}}
		buckets := newSet(bucketKind)
		for i, backend := range w.buckets[bucketName(f, s.Name)] {
			buckets.elements[bucketKey(i)] = element{chain: backend}
		}
		t.sets[bucketName(f, s.Name)] = buckets
	}
	for _, b := range s.Backends {
		name := backendName(s.Name, b.Addr)
		t.chains[name] = chain{rules: []ruleset.Rule{backendRule(b.Addr, w.counts[name], w.brief)}}
	}
	for _, place := range s.Listen {
		f, key := familyOf(place.Addr()), placeKey(place)
		t.sets[listen+f.version].elements[key] = element{chain: serviceName(f, s.Name), lasts: w.outlive}
		if !s.Transparent || isLoopback(place) { // 127.0.0.1 as the source is of no use elsewhere
			t.sets[masquerade+f.version].elements[key] = element{}
		}
	}
}

// balancing is whether a name is of the part of the table that is for services.
func balancing(name string) bool {
	parts := []string{listen, taken, masquerade, serviceChain, bucketMap, backendChain, localnet}
	return slices.ContainsFunc(parts, func(of string) bool { return strings.HasPrefix(name, of) })
}

// assign gives the buckets of services to who serves, and moves as few as it can of those
// that are in the table.
func assign(have table, services []balancer.Service, node string) map[string][]string {
	out := make(map[string][]string)
	for _, s := range services {
		for _, f := range families {
			var serving []string
			for _, b := range s.Backends {
				if b.State == balancer.Serving && familyOf(b.Addr.Addr()) == f {
					serving = append(serving, backendName(s.Name, b.Addr))
				}
			}
			before := make([]string, balancer.Buckets)
			elements := have.sets[bucketName(f, s.Name)].elements
			for i := range before {
				before[i] = elements[bucketKey(i)].chain
			}
			out[bucketName(f, s.Name)] = balancer.Assign(before, serving, node)
		}
	}
	return out
}

// reachable returns services with those backends only that the kernel can have. The others are an error
// beside the rest: what members and DNS tell is not to keep others from being carried.
func reachable(services []balancer.Service) ([]balancer.Service, error) {
	listening := balancer.Places(services)
	out := slices.Clone(services)
	var refused []error
	for i, s := range services {
		out[i].Backends = nil
		for _, b := range s.Backends {
			err := checkBackend(b.Addr)
			if other, ok := listening[b.Addr]; ok {
				err = fmt.Errorf("balancer %s listens there", other)
			}
			if err != nil {
				refused = append(refused, &balancer.ServiceError{Service: s.Name, Err: fmt.Errorf("cannot have %s as a backend: %w", b.Addr, err)})
				continue
			}
			out[i].Backends = append(out[i].Backends, b)
		}
	}
	return out, errors.Join(refused...)
}

func checkBackend(backend netip.AddrPort) error {
	addr := backend.Addr()
	switch {
	case addr.IsUnspecified():
		return errors.New("an address and a port are needed")
	case addr.IsLoopback():
		return errors.New("only this host reaches it: use an address that others reach, or mode: proxy")
	case addr.Zone() != "" || addr.IsMulticast():
		return errors.New("only addresses of hosts that mean the same on all links will do")
	}
	return nil
}

// recall is what the found table says of the time before: which links have been set, what is
// taken, and what has been counted.
func (w *wanted) recall(found table) {
	w.localnet, w.taken = make(map[string]bool), make(map[netip.AddrPort]string)
	for key := range found.sets[localnet].elements {
		w.localnet[linkOf(key)] = true
	}
	for _, f := range families {
		for key, e := range found.sets[taken+f.version].elements {
			if place, ok := placeOf(key); ok {
				w.taken[place] = e.comment
			}
		}
	}
	w.counts = make(map[string]uint64)
	w.recount(found.chains)
}

// recount remembers what chains have counted, in case somebody else removes them.
func (w *wanted) recount(chains map[string]chain) {
	for name, c := range chains {
		if strings.HasPrefix(name, backendChain) {
			w.counts[name] = c.packets()
		}
	}
}
