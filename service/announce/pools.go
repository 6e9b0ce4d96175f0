package announce

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/service"
	"github.com/herald-vip/herald/service/pool"
)

// addressPool is a parsed AddressPool and its state on this node.
type addressPool struct {
	name    string
	created time.Time
	spec    *v1alpha1.AddressPoolSpec
	err     error // why its latest version is invalid
	ranges  []pool.Range

	bgp        *poolBGP
	exceptions []*poolBGP
	arp        *poolARP
	// flat is whether this node may hold the addresses. unrouted is why they have no BGP route, if bgp is nil.
	flat, unrouted service.Eligibility
}

// poolBGP is how addresses of a pool are announced by BGP: the rule of the pool or an exception for some Services.
type poolBGP struct {
	services   service.Selectors // the Services of an exception
	lengths    [2]int            // prefix lengths, by family
	eligible   [2]service.Eligibility
	selectors  service.Selectors
	peers      []string // as the pool names them; nil means all
	attributes v1alpha1.Attributes
	export     *export
}

type poolARP struct {
	interfaces []string
	selectors  service.Selectors
	// preferences rank the nodes as holders; with preempt, a preferred node takes the address from its holder.
	preferences []preference
	preempt     bool
	nodes       []string // that may hold its addresses, sorted; shared, so never modified in place
}

type preference struct {
	weight    int
	selectors service.Selectors
	endpoints bool
}

// SetPool handles a new or changed pool. An invalid version is logged and ignored: the last valid version stays.
func (a *Announcer) SetPool(o *v1alpha1.AddressPool) {
	if o == nil {
		return
	}
	a.event(func() {
		p := a.pools[o.Name]
		if p != nil && p.spec != nil && p.created.Equal(o.CreationTimestamp.Time) && reflect.DeepEqual(*p.spec, o.Spec) {
			p.err = nil
			return // only its status changed
		}
		if p == nil {
			p = &addressPool{name: o.Name}
			a.pools[o.Name] = p
		}
		next, err := parsePool(o)
		if err != nil {
			if known := p.err; known == nil || known.Error() != err.Error() {
				a.moves = append(a.moves, move{pool: o.Name, err: err})
			}
			p.err = err
			return
		}
		before := p.ranges
		*p = *next
		a.evaluate(p)
		a.rearrange(slices.Concat(before, p.ranges))
	})
}

// DeletePool handles the deletion of a pool.
func (a *Announcer) DeletePool(name string) {
	a.event(func() {
		if p := a.pools[name]; p != nil {
			delete(a.pools, name)
			a.rearrange(p.ranges)
		}
	})
}

func parsePool(o *v1alpha1.AddressPool) (*addressPool, error) {
	p := &addressPool{name: o.Name, created: o.CreationTimestamp.Time, spec: &o.Spec}
	for _, text := range o.Spec.Addresses {
		r, err := pool.ParseRange(string(text))
		if err != nil {
			return nil, err
		}
		p.ranges = append(p.ranges, r)
	}
	var err error
	if b := o.Spec.BGP; b != nil {
		all := v1alpha1.PoolBGPException{Peers: b.Peers, NodeSelectors: b.NodeSelectors, Attributes: b.Attributes}
		if p.bgp, err = parseBGP(all); err != nil {
			return nil, err
		}
		p.bgp.lengths = [2]int{pool.IPv4: int(b.AggregationLength), pool.IPv6: int(b.AggregationLengthV6)}
		for _, e := range b.Exceptions {
			exception, err := parseBGP(e)
			if err != nil {
				return nil, err
			}
			p.exceptions = append(p.exceptions, exception)
		}
	}
	if arp := o.Spec.ARP; arp != nil {
		p.arp = &poolARP{}
		if p.arp.selectors, err = service.SelectorsOf(arp.NodeSelectors); err != nil {
			return nil, fmt.Errorf("arp: label selector: %w", err)
		}
		p.arp.preempt = arp.Preempt
		for _, o := range arp.Preferences {
			selectors, err := service.SelectorsOf(o.NodeSelectors)
			if err != nil {
				return nil, fmt.Errorf("arp: preferences: label selector: %w", err)
			}
			p.arp.preferences = append(p.arp.preferences, preference{weight: int(o.Weight), selectors: selectors, endpoints: o.Endpoints})
		}
		for _, link := range arp.Interfaces {
			p.arp.interfaces = append(p.arp.interfaces, string(link))
		}
	}
	return p, nil
}

func parseBGP(e v1alpha1.PoolBGPException) (*poolBGP, error) {
	b := &poolBGP{peers: e.Peers, attributes: e.Attributes}
	var err error
	if b.services, err = service.SelectorsOf(e.ServiceSelectors); err != nil {
		return nil, fmt.Errorf("bgp: label selector: %w", err)
	}
	if b.selectors, err = service.SelectorsOf(e.NodeSelectors); err != nil {
		return nil, fmt.Errorf("bgp: label selector: %w", err)
	}
	return b, nil
}

// routed returns the BGP rules of the pool: its own and the exceptions.
func (p *addressPool) routed() []*poolBGP {
	if p.bgp == nil {
		return nil
	}
	return append([]*poolBGP{p.bgp}, p.exceptions...)
}

// eligibility returns this node's eligibility for the addresses of the pool.
func (p *addressPool) eligibility() []service.Eligibility {
	out := []service.Eligibility{p.flat, p.unrouted}
	for _, b := range p.routed() {
		out = append(out, b.eligible[:]...)
	}
	return out
}

// rearrange decides the addresses in ranges, after their pools may have changed. It includes all
// addresses of overlapping pools, as they may share an aggregate.
func (a *Announcer) rearrange(ranges []pool.Range) {
	a.byAge = slices.SortedFunc(maps.Values(a.pools), func(x, y *addressPool) int {
		return cmp.Or(x.created.Compare(y.created), cmp.Compare(x.name, y.name))
	})
	all := slices.Clone(ranges)
	for _, p := range a.byAge {
		if slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return slices.ContainsFunc(ranges, r.Overlaps) }) {
			all = append(all, p.ranges...)
		}
	}
	a.within(all, func(x *address) {
		x.pool = a.poolOf(x.addr)
		a.affected = append(a.affected, x)
	})
	a.decideAffected()
}

// within calls f for the addresses in ranges.
func (a *Announcer) within(ranges []pool.Range, f func(*address)) {
	for _, r := range ranges {
		a.addresses.AscendGreaterOrEqual(&address{addr: r.First}, func(x *address) bool {
			if r.Last.Less(x.addr) {
				return false
			}
			f(x)
			return true
		})
	}
}

// evaluate updates this node's eligibility for a pool, and the path attributes and peers of its routes.
func (a *Announcer) evaluate(p *addressPool) {
	node := a.nodes[a.config.Node]
	self := service.Planned("the cluster has no node %s: set nodeName", a.config.Node)
	if node != nil {
		self = a.config.Fitness.Fit(node)
	}
	selects := func(s service.Selectors) service.Eligibility {
		if node != nil && s.Match(node.Labels) {
			return service.Eligibility{}
		}
		return service.Planned("pool %s does not select this node", p.name)
	}
	if p.bgp == nil {
		p.unrouted = service.Planned("pool %s is not announced by BGP", p.name).And(self)
	}
	for _, b := range p.routed() {
		a.updateExport(b)
		for _, family := range []pool.Family{pool.IPv4, pool.IPv6} {
			b.eligible[family] = self.And(selects(b.selectors)).And(a.peersTake(p, b, family))
		}
	}
	if p.arp == nil {
		p.flat = service.Planned("pool %s is not announced on a flat layer 2", p.name).And(self)
	} else {
		p.flat = self.And(selects(p.arp.selectors))
		p.arp.nodes = nil
		for name, n := range a.nodes {
			if a.mayHold(p.arp, n) {
				p.arp.nodes = append(p.arp.nodes, name)
			}
		}
		slices.Sort(p.arp.nodes)
	}
}

// evaluateAll evaluates all pools and decides all addresses.
func (a *Announcer) evaluateAll() {
	for _, p := range a.pools {
		a.evaluate(p)
	}
	a.decideAll()
}

// peersTake returns whether any peer of this node takes routes of a family from a pool.
func (a *Announcer) peersTake(p *addressPool, b *poolBGP, family pool.Family) service.Eligibility {
	peers := b.export.peers
	if peers == nil {
		peers = a.peers
	}
	switch {
	case len(a.config.Peers) == 0:
		return service.Planned("this node has no BGP peer")
	case len(peers) == 0:
		return service.Planned("this node has no peer of pool %s", p.name)
	case !slices.ContainsFunc(peers, func(peer string) bool { return a.carries(peer, family) }):
		return service.Planned("no peer of this node in pool %s carries %s: add it to the families of a peer", p.name, family)
	}
	return service.Eligibility{}
}

// carries reports whether the session with a peer carries routes of a family.
func (a *Announcer) carries(peer string, family pool.Family) bool {
	only, limited := a.config.Only[peer]
	return !limited || only == family
}

// updateExport updates the path attributes and peers of a pool's routes.
func (a *Announcer) updateExport(b *poolBGP) {
	next := &export{attributes: a.config.Attributes.Merge(b.attributes)}
	if b.peers != nil {
		next.peers = []string{}
		for _, name := range b.peers {
			next.peers = append(next.peers, a.config.Peers[name]...)
		}
		slices.Sort(next.peers)
		next.peers = slices.Compact(next.peers)
	}
	if !reflect.DeepEqual(b.export, next) {
		b.export = next
	}
}

// SetNode handles a new or changed node, this one or another. It needs the node's name,
// labels, taints and conditions, and whether it is unschedulable.
func (a *Announcer) SetNode(n *corev1.Node) {
	if n == nil {
		return
	}
	a.event(func() {
		known := a.nodes[n.Name]
		a.nodes[n.Name] = n
		a.nodeChanged(n.Name, known == nil || !maps.Equal(known.Labels, n.Labels))
	})
}

// DeleteNode handles the deletion of a node.
func (a *Announcer) DeleteNode(name string) {
	a.event(func() {
		if _, ok := a.nodes[name]; ok {
			delete(a.nodes, name)
			a.nodeChanged(name, true)
		}
	})
}

// nodeChanged decides the addresses of pools if the node's eligibility for them has changed. If its labels have changed, it
// includes the pools that rank nodes by labels.
func (a *Announcer) nodeChanged(name string, labels bool) {
	for _, p := range a.pools {
		before := p.eligibility()
		if name == a.config.Node {
			a.evaluate(p)
		}
		preferred := labels && p.arp != nil && len(p.arp.preferences) > 0
		if a.enlist(p, name) || preferred || !slices.Equal(p.eligibility(), before) {
			a.within(p.ranges, func(x *address) { a.affected = append(a.affected, x) })
		}
	}
	a.decideAffected()
}

// enlist updates a node's entry in the list of nodes that may hold the addresses of a pool.
// It reports whether the list has changed.
func (a *Announcer) enlist(p *addressPool, name string) bool {
	if p.arp == nil {
		return false
	}
	n, known := a.nodes[name]
	i, listed := slices.BinarySearch(p.arp.nodes, name)
	switch fit := known && a.mayHold(p.arp, n); {
	case fit && !listed:
		p.arp.nodes = slices.Insert(slices.Clone(p.arp.nodes), i, name)
	case !fit && listed:
		p.arp.nodes = slices.Delete(slices.Clone(p.arp.nodes), i, i+1)
	default:
		return false
	}
	return true
}

func (a *Announcer) mayHold(p *poolARP, n *corev1.Node) bool {
	return a.config.Fitness.Fit(n).OK() && p.selectors.Match(n.Labels)
}

// poolOf returns the pool of an address, or nil. If two pools contain it, which the API
// cannot rule out, the older one wins.
func (a *Announcer) poolOf(addr netip.Addr) *addressPool {
	for _, p := range a.byAge {
		if slices.ContainsFunc(p.ranges, func(r pool.Range) bool { return r.Contains(addr) }) {
			return p
		}
	}
	return nil
}

// holds reports whether all addresses of a network belong to pool p.
func (a *Announcer) holds(p *addressPool, network netip.Prefix) bool {
	next := network.Addr()
	for _, older := range a.byAge[:slices.Index(a.byAge, p)] {
		if slices.ContainsFunc(older.ranges, func(r pool.Range) bool { return r.Contains(next) || network.Contains(r.First) }) {
			return false
		}
	}
	for network.Contains(next) {
		i := slices.IndexFunc(p.ranges, func(r pool.Range) bool { return r.Contains(next) })
		if i < 0 {
			return false
		}
		next = p.ranges[i].Last.Next()
	}
	return true
}
