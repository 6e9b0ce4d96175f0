package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/herald-vip/herald/balancer"
)

// anyServices draws up to three services with different listeners.
func anyServices(t *rapid.T) []balancer.Service {
	var out []balancer.Service
	for i, name := range []string{"apiserver", "registry", "x.1"} {
		if !rapid.Bool().Draw(t, name) {
			continue
		}
		s := balancer.Service{
			Name:        name,
			Method:      rapid.SampledFrom([]balancer.Method{balancer.RoundRobin, balancer.SourceHash}).Draw(t, "method"),
			Transparent: rapid.Bool().Draw(t, "transparent"),
		}
		for _, place := range []string{"127.0.0.1:%d", "10.9.0.100:%d", "[fd00:9::100]:%d"} {
			if rapid.Bool().Draw(t, "listens") {
				port := rapid.SampledFrom([]int{9000 + i, 9100 + i}).Draw(t, "port")
				s.Listen = append(s.Listen, netip.MustParseAddrPort(fmt.Sprintf(place, port)))
			}
		}
		for b := range 4 {
			for _, addr := range []string{"10.9.0.%d:6443", "[fd00:9::%d]:6443"} {
				if rapid.Bool().Draw(t, "there") {
					s.Backends = append(s.Backends, balancer.Backend{
						Addr:  netip.MustParseAddrPort(fmt.Sprintf(addr, b+3)),
						State: rapid.SampledFrom([]balancer.State{balancer.Serving, balancer.Serving, balancer.Draining, balancer.Dead}).Draw(t, "state"),
					})
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// For any sequence of services a plan turns one table into exactly the next one, and changes only the differences.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var have table
		for range rapid.IntRange(1, 5).Draw(t, "changes") {
			services, err := reachable(anyServices(t))
			if err != nil {
				t.Fatal(err)
			}
			w := wanted{services: services, outlive: time.Minute, taken: balancer.Places(services)}
			w.buckets = assign(have, services, "node")
			want := w.table()
			todo := change(have, want)
			have = carriedOut(t, todo, have, want)
			if left := change(have, want); !left.empty() {
				t.Fatalf("remaining plan: %+v", left)
			}
			right(t, have, services)
		}
	})
}

// carriedOut returns the table after a plan for want. It fails if the plan adds an existing element or removes a missing one.
func carriedOut(t *rapid.T, p plan, have, want table) table {
	out := table{chains: maps.Clone(have.chains), sets: make(map[string]set)}
	if out.chains == nil {
		out.chains = make(map[string]chain)
	}
	for name, s := range have.sets {
		out.sets[name] = set{s.kind, maps.Clone(s.elements)}
	}
	for _, e := range p.remove {
		if out.sets[e.set].elements[e.key] != e.element {
			t.Fatalf("%v is removed, but missing", e)
		}
		delete(out.sets[e.set].elements, e.key)
	}
	for _, name := range p.dropSets {
		delete(out.sets, name)
	}
	for _, name := range p.dropChains {
		delete(out.chains, name)
		for setName, s := range out.sets {
			for _, e := range s.elements {
				if e.chain == name {
					t.Fatalf("chain %s is deleted while %s refers to it", name, setName)
				}
			}
		}
	}
	for _, name := range p.addSets {
		out.sets[name] = newSet(want.sets[name].kind)
	}
	for _, name := range p.addChains {
		out.chains[name] = chain{hook: want.chains[name].hook}
	}
	for _, name := range p.fill {
		out.chains[name] = chain{hook: out.chains[name].hook, rules: want.chains[name].rules}
	}
	for _, e := range p.put {
		if _, present := out.sets[e.set].elements[e.key]; present {
			t.Fatalf("%v is added twice", e)
		}
		if _, ok := out.chains[e.element.chain]; !ok && out.sets[e.set].kind.verdict {
			t.Fatalf("%v refers to a missing chain", e)
		}
		out.sets[e.set].elements[e.key] = e.element
	}
	return out
}

// right checks the content of a table against services.
func right(t *rapid.T, got table, services []balancer.Service) {
	listening := make(map[netip.AddrPort]string)
	for _, f := range families {
		for key, e := range got.sets[listen+f.version].elements {
			place, _ := placeOf(key)
			listening[place] = e.chain
		}
	}
	for _, s := range services {
		for _, place := range s.Listen {
			f := familyOf(place.Addr())
			if listening[place] != serviceName(f, s.Name) {
				t.Fatalf("at %s: %q", place, listening[place])
			}
			delete(listening, place)
			if _, masqueraded := got.sets[masquerade+f.version].elements[placeKey(place)]; masqueraded == (s.Transparent && !isLoopback(place)) {
				t.Fatalf("%s is masqueraded: %v", place, masqueraded)
			}
		}
		for _, f := range families {
			share := make(map[string]int)
			for _, e := range got.sets[bucketName(f, s.Name)].elements {
				share[e.chain]++
			}
			serving := 0
			for _, b := range s.Backends {
				if b.State == balancer.Serving && familyOf(b.Addr.Addr()) == f {
					serving++
				}
			}
			if len(share) != serving {
				t.Fatalf("%s: shares %v, but %d backends serve", s.Name, share, serving)
			}
			for _, b := range s.Backends {
				n := share[backendName(s.Name, b.Addr)]
				if least := balancer.Buckets / max(1, serving); n != 0 && (n < least || n > least+1 || b.State != balancer.Serving) {
					t.Fatalf("%s: %+v has %d buckets", s.Name, b, n)
				}
			}
		}
	}
	if len(listening) != 0 {
		t.Fatalf("listeners without a service: %v", listening)
	}
}

// The kernel's table is the desired one after any sequence of operations.
func TestKernelFollows(t *testing.T) {
	s := newSite(t)
	masters := make(map[netip.Addr][]netip.Addr)
	p := s.node.idlePlane(Options{Node: "node"})
	rapid.Check(t, func(t *rapid.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		services := anyServices(t)
		must(p.Apply(services))
		for range rapid.IntRange(1, 4).Draw(t, "deeds") {
			switch rapid.SampledFrom([]string{"apply", "apply", "prepare", "open", "close", "flush", "adopt", "refresh"}).Draw(t, "deed") {
			case "apply":
				services = anyServices(t)
			case "prepare":
				masters = make(map[netip.Addr][]netip.Addr)
				for _, m := range s.masters[:rapid.IntRange(0, 3).Draw(t, "masters")] {
					masters[vip4.Addr()] = append(masters[vip4.Addr()], m.v4)
				}
				must(p.Bridge().Prepare(masters))
			case "open":
				p.Bridge().Open(time.Hour, vip4.Addr(), vip6.Addr())
				must(p.owner.openBridge())
			case "close":
				must(p.Bridge().Close(vip4.Addr()))
			case "flush":
				s.node.NFT("flush ruleset")
				must(p.owner.repair())
			case "adopt":
				must(p.Close())
				p = s.node.idlePlane(Options{Node: "node"})
				must(p.Bridge().Prepare(masters))
			case "refresh":
				must(p.refresh())
			}
			must(p.Apply(services))
			var found table
			var todo plan
			for range 3 { // Linux may omit elements of a set while it resizes the set
				var err error
				found, err = p.owner.read()
				must(err)
				if todo = change(found, p.owner.desired(found)); todo.empty() {
					break
				}
			}
			if !todo.empty() {
				t.Fatalf("the table is not the desired one: %+v", todo)
			}
			right(t, found, services)
			open := slices.Collect(maps.Keys(found.sets[bridge+"4"].elements))
			if want := p.owner.left(found); len(open) != len(want) {
				t.Fatalf("open bridges %q, want %v", open, want)
			}
		}
	})
}
