package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/herald-vip/herald/balancer"
	"github.com/herald-vip/herald/netutil/ruleset"
)

// table is the content of Herald's table, desired or found.
type table struct {
	dormant bool // the kernel skips its chains
	chains  map[string]chain
	sets    map[string]set
}

// chain has rules, and a hook if it is a base chain.
type chain struct {
	hook  hook // zero: none
	rules []ruleset.Rule
}

// hook is a place in the kernel's packet flow.
type hook struct {
	kind     nftables.ChainType
	at       nftables.ChainHook
	priority nftables.ChainPriority
}

// set is a set or map of nftables.
type set struct {
	kind     kind
	elements map[string]element // by key
}

// element is an element of a set. In a map it has a target chain.
type element struct {
	chain   string
	comment string
	lasts   time.Duration // timeout; 0 is none
}

// edit adds or removes an element of a set.
type edit struct {
	set, key string
	element  element
}

// plan lists the steps from one table to another, in their order in a batch. It leaves common parts alone: rules keep their
// counters and elements their timeouts.
type plan struct {
	awaken     bool     // wakes a dormant table; any write does
	remove     []edit   // old elements
	addSets    []string // without elements
	addChains  []string // without rules
	fill       []string // chains to replace the rules of
	put        []edit
	dropChains []string
	dropSets   []string
}

func (p plan) empty() bool {
	return !p.awaken && len(p.remove)+len(p.addSets)+len(p.addChains)+len(p.fill)+len(p.put)+len(p.dropChains)+len(p.dropSets) == 0
}

// renew adds an element or restarts its timeout.
func (p *plan) renew(e edit) {
	p.remove, p.put = append(p.remove, e), append(p.put, e)
}

// change plans the change from have to want.
func change(have, want table) plan {
	p := plan{awaken: have.dormant}
	for name, c := range sorted(want.chains) {
		prev, ok := have.chains[name]
		if ok && c.hook != prev.hook { // replaced under the same name
			p.dropChains = append(p.dropChains, name)
			ok = false
		}
		if !ok {
			p.addChains = append(p.addChains, name)
		}
		if !ok || !slices.EqualFunc(c.rules, prev.rules, ruleset.Rule.Same) {
			p.fill = append(p.fill, name)
		}
	}
	for name := range sorted(have.chains) {
		if _, ok := want.chains[name]; !ok {
			p.dropChains = append(p.dropChains, name)
		}
	}
	for name, s := range sorted(want.sets) {
		prev, ok := have.sets[name]
		if !ok {
			p.addSets = append(p.addSets, name)
		}
		for key, e := range s.elements {
			if old, ok := prev.elements[key]; ok && old.chain == e.chain && old.comment == e.comment {
				continue
			} else if ok {
				p.remove = append(p.remove, edit{name, key, old})
			}
			p.put = append(p.put, edit{name, key, e})
		}
		for key, e := range prev.elements {
			if _, ok := s.elements[key]; !ok {
				p.remove = append(p.remove, edit{name, key, e})
			}
		}
	}
	for name := range sorted(have.sets) {
		if _, ok := want.sets[name]; !ok {
			p.dropSets = append(p.dropSets, name)
		}
	}
	return p
}

// sorted iterates over a map in the order of its keys, so that equal changes give equal plans.
func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// packets returns the sum of the chain's counters.
func (c chain) packets() uint64 {
	var sum uint64
	for _, r := range c.rules {
		sum += r.Packets
	}
	return sum
}

// addServices adds the chains and sets of other that serve services.
func (t table) addServices(other table) {
	for name, c := range other.chains {
		if balancing(name) {
			t.chains[name] = c
		}
	}
	for name, s := range other.sets {
		if balancing(name) {
			t.sets[name] = s
		}
	}
}

// Priorities: destinations are translated before kube-proxy and others at -100, sources before others at 100. The guard
// has the priority of the fence, before conntrack.
var (
	beforeOthersDest   = *nftables.ChainPriorityNATDest - 1
	beforeOthersSource = *nftables.ChainPriorityNATSource - 1
	first              = *nftables.ChainPriorityRaw
)

// Registers. A key of several fields fills consecutive words.
const (
	reg1 = unix.NFT_REG_1
	reg2 = unix.NFT_REG_2
)

// baseChains returns the base chains.
//
// Chains of type nat see only the first packet that conntrack knows of a connection. Only a SYN is assigned to a
// backend: any other packet belongs to a connection that conntrack has lost, and the new backend would be the wrong one.
func baseChains() map[string]chain {
	var leaving, outside []ruleset.Rule
	// The kernel tracks connections only while a rule needs it, and forgets translations in between. When the table is made
	// anew, this rule comes before all others that need it.
	const original = 0 // IP_CT_DIR_ORIGINAL
	arriving := []ruleset.Rule{ruleset.NewRule("connections are tracked", []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg1}}, ruleset.Equal(original))}
	for _, f := range families {
		port := []expr.Any{&expr.Payload{DestRegister: ruleset.Word(f.length / 4), Base: ruleset.Transport, Offset: 2, Len: 2}}
		arriving = append(arriving, ruleset.NewRule("new connections to listeners, IPv"+f.version,
			f.matches(), ruleset.TCP(), ruleset.SYN(), ruleset.Load(ruleset.Network, f.dest, f.length), port, lookUp(listen+f.version),
		))
	}
	for _, f := range families {
		arriving = append(arriving, ruleset.NewRule("new connections to bridged VIPs, IPv"+f.version,
			f.matches(), ruleset.TCP(), ruleset.SYN(), ruleset.Load(ruleset.Network, f.dest, f.length), lookUp(bridge+f.version),
		))
		translated := ruleset.Join(
			// Packets to lo stay on this host and keep the client's address.
			ruleset.Meta(expr.MetaKeyOIFTYPE), ruleset.NotEqual(ruleset.Loopback()...), f.matches(), ruleset.TCP(), ruleset.Translated(ruleset.Destination),
			connection(f.ctDest, reg1, false),
		)
		leaving = append(leaving, ruleset.NewRule("source of connections to listeners, IPv"+f.version,
			translated, connection(expr.CtKeyPROTODST, ruleset.Word(f.length/4), false), ruleset.In(masquerade+f.version), []expr.Any{&expr.Masq{}},
		), ruleset.NewRule("source of connections to bridged VIPs, IPv"+f.version,
			translated, connection(f.ctSource, ruleset.Word(f.length/4), true), ruleset.In(bridged+f.version), []expr.Any{&expr.Masq{}},
		))
	}
	// Packets from outside must not have such addresses (RFC 1122, section 3.2.1.3). Without route_localnet Linux drops them
	// when it routes them, but only after translation.
	v4 := families[0]
	for _, field := range []struct {
		name string
		at   uint32
	}{{"to", v4.dest}, {"from", v4.source}} {
		outside = append(outside, ruleset.NewRule("from outside "+field.name+" 127.0.0.0/8",
			v4.matches(), ruleset.Meta(expr.MetaKeyIIFTYPE), ruleset.NotEqual(ruleset.Loopback()...),
			ruleset.Load(ruleset.Network, field.at, 1), ruleset.Equal(127), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}},
		))
	}
	return map[string]chain{
		guard:       {hook{nftables.ChainTypeFilter, *nftables.ChainHookPrerouting, first}, outside},
		prerouting:  {hook{nftables.ChainTypeNAT, *nftables.ChainHookPrerouting, beforeOthersDest}, arriving},
		output:      {hook{nftables.ChainTypeNAT, *nftables.ChainHookOutput, beforeOthersDest}, arriving},
		postrouting: {hook{nftables.ChainTypeNAT, *nftables.ChainHookPostrouting, beforeOthersSource}, leaving},
	}
}

// serviceRule chooses a bucket and jumps to its backend.
func serviceRule(f family, s balancer.Service) ruleset.Rule {
	method, bucket := balancer.RoundRobin, []expr.Any{&expr.Numgen{Register: reg2, Modulus: balancer.Buckets, Type: unix.NFT_NG_INCREMENTAL}}
	if s.Method == balancer.SourceHash {
		method = balancer.SourceHash
		// The seed must never change.
		bucket = append(ruleset.Load(ruleset.Network, f.source, f.length), &expr.Hash{
			SourceRegister: reg1, DestRegister: reg2, Length: f.length, Modulus: balancer.Buckets, Seed: 1, Type: expr.HashTypeJenkins,
		})
	}
	return ruleset.NewRule(string(method), bucket, []expr.Any{
		&expr.Lookup{SourceRegister: reg2, IsDestRegSet: true, SetName: bucketName(f, s.Name)},
	})
}

// masterRules spreads connections over the masters and keeps the port. The first rule takes one in n connections, the
// next rule one in n-1 of the rest, and the last rule the remainder.
func masterRules(masters []netip.Addr, halfOpen []expr.Any) []ruleset.Rule {
	rules := make([]ruleset.Rule, 0, len(masters))
	for i, master := range masters {
		var turn []expr.Any
		if rest := len(masters) - i; rest > 1 {
			turn = append([]expr.Any{
				&expr.Numgen{Register: reg1, Modulus: uint32(rest), Type: unix.NFT_NG_INCREMENTAL},
			}, ruleset.Equal(0, 0, 0, 0)...)
		}
		rules = append(rules, ruleset.NewRule(fmt.Sprintf("one of %d to %s", len(masters)-i, master), turn, halfOpen, []expr.Any{
			&expr.Immediate{Register: reg1, Data: master.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(master).protocol), RegAddrMin: reg1},
		}))
	}
	return rules
}

// connection loads an address or port of the packet's connection from conntrack.
func connection(key expr.CtKey, register uint32, reply bool) []expr.Any {
	return []expr.Any{&ruleset.Ct{Ct: expr.Ct{Key: key, Register: register}, Reply: reply}}
}

func (f family) matches() []expr.Any {
	return ruleset.Join(ruleset.Meta(expr.MetaKeyNFPROTO), ruleset.Equal(f.protocol))
}

// lookUp jumps to the chain that a map has for the loaded key.
func lookUp(name string) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: reg1, IsDestRegSet: true, SetName: name}}
}
