package nft

import (
	"encoding/binary"
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

// wanted describes the desired table.
type wanted struct {
	services []balancer.Service
	buckets  map[string][]string // chain of the backend of each bucket, by bucketName
	taken    map[netip.AddrPort]string
	localnet map[string]bool
	masters  map[netip.Addr][]netip.Addr // by VIP
	open     map[netip.Addr]time.Duration
	counts   map[string]uint64 // counters of backends' chains
	outlive  time.Duration
	halfOpen []expr.Any // sets the timeout of half-open connections; nil if the kernel cannot
}

// base returns the table without services.
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
		t.chains[bridgeChain+dashed(vip)] = chain{rules: []ruleset.Rule{ruleset.NewRule("to "+vip.String(), []expr.Any{
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: masterChain + dashed(vip)},
		})}}
		t.chains[masterChain+dashed(vip)] = chain{rules: masterRules(masters, w.halfOpen)}
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
		translate := []expr.Any{
			&expr.Immediate{Register: reg1, Data: b.Addr.Addr().AsSlice()},
			&expr.Immediate{Register: reg2, Data: binary.BigEndian.AppendUint16(nil, b.Addr.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(b.Addr.Addr()).protocol), RegAddrMin: reg1, RegProtoMin: reg2},
		}
		count := []expr.Any{&expr.Counter{Packets: w.counts[name]}}
		t.chains[name] = chain{rules: []ruleset.Rule{ruleset.NewRule("to "+b.Addr.String(), ruleset.TCP(), count, w.halfOpen, translate)}}
	}
	for _, place := range s.Listen {
		f, key := familyOf(place.Addr()), placeKey(place)
		t.sets[listen+f.version].elements[key] = element{chain: serviceName(f, s.Name), lasts: w.outlive}
		if !s.Transparent || isLoopback(place) { // other hosts cannot answer 127.0.0.1
			t.sets[masquerade+f.version].elements[key] = element{}
		}
	}
}

// balancing reports whether a chain or set serves a service.
func balancing(name string) bool {
	parts := []string{listen, taken, masquerade, serviceChain, bucketMap, backendChain}
	return slices.ContainsFunc(parts, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// assign assigns the buckets of services to serving backends, and moves as few as possible compared to the table.
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

// reachable returns services without the backends that the kernel cannot use, and an error about these. Input from members
// and DNS must not stop other backends.
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
		return errors.New("want the address of a host, without a zone")
	}
	return nil
}

// recall reads a predecessor's state from the found table: links with route_localnet, taken places and counters.
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

// recount remembers the counters of chains, in case another program removes them.
func (w *wanted) recount(chains map[string]chain) {
	for name, c := range chains {
		if strings.HasPrefix(name, backendChain) {
			w.counts[name] = c.packets()
		}
	}
}
